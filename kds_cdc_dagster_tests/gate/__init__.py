"""The release gate: whatever happens to a stage of a load, rows, ledgers and exports end the same.

`make gate`, or `python -m kds_cdc_dagster_tests.gate [--warehouse duckdb]`, prints stage × fault × warehouse × result.
"""
