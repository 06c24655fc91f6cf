"""The whole path in one process: queue, intake, journal, load, warehouse; without Dagster."""
