"""Benchmarks: `python -m kds_cdc_dagster_tests.bench [--quick] [names…]`. What bounds what: docs/PERFORMANCE.md."""
