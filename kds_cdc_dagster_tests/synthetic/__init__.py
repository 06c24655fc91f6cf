"""A small model of a source database and a Debezium engine: seeded change events, and the oracle they come from.

Written from Debezium's own sources and four recorded captures, sharing no code with the contracts it tests:

    tables     what the four packaged tables look like on PostgreSQL, MySQL and MariaDB
    values     random values of a declared type
    encoding   a value as Debezium's JSON converter writes it; `schemas`: its Kafka Connect schema
    database   committed rows, open transactions, the log
    engine     committed transactions and snapshots as change events
    forms      bare, wrapped, flattened; what a redelivery looks like
    player     a random life of the database with its engine
"""
