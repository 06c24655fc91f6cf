"""Kitchen display change events: from a FIFO queue to curated tables and exports, in order, once."""

import os

# Before pyarrow is imported anywhere: its own allocator keeps some 90 MiB more in each process, and is no faster here.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
