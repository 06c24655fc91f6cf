"""`python -m kds_cdc_dagster.cli`: the same as `kds-cdc`."""

from kds_cdc_dagster.cli import main

main()
