"""The packaged demonstration: excerpts of real captures and the source's own final rows."""
