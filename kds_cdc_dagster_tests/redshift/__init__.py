"""A Redshift stand-in: PostgreSQL behind a wire proxy that knows COPY, UNLOAD and what Redshift refuses."""
