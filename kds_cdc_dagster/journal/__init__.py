"""What lies in the object store and in which form: segments, manifests, index, outbox, epochs.

Immutable objects only. `keys` is the map of all of them. Knows the object store port, nothing above.
"""
