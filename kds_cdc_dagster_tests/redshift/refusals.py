"""SQL that PostgreSQL takes and Redshift refuses. A green test over the stand-in means: legal on Redshift.

Sources: AWS Developer Guide (unsupported PostgreSQL features, MERGE, ALTER TABLE, window functions, leader-node
functions). Where the guide is silent the stand-in assumes the worse case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kds_cdc_dagster_tests.redshift import wire
from kds_cdc_dagster_tests.redshift.tokens import Token, normal
from kds_cdc_dagster_tests.redshift.wire import Refused

SYNTAX, UNSUPPORTED, IN_BLOCK = "42601", "0A000", "25001"
_FOREIGN_TYPES = r"(?:jsonb?|uuid|bytea|xml|money|inet|cidr|hstore|tsvector|(?:big|small)?serial)"
_FOREIGN_FUNCTIONS = (
    r"(?:now|clock_timestamp|statement_timestamp|string_agg|array_agg|jsonb?_\w+"
    r"|to_jsonb?|row_to_json|regexp_matches|unnest|encode|decode|format|gen_random_uuid|nextval|pg_advisory\w*)"
)
_AGGREGATES = r"(?:sum|count|avg|min|max|first_value|last_value|nth_value)"
_JSON_FUNCTIONS = r"json_(?:parse|serialize|extract_path_text|extract_array_element_text|array_length|typeof|size)"

_RULES = tuple(
    (re.compile(pattern), code, message)
    for pattern, code, message in (
        (r"\bon conflict\b", SYNTAX, 'syntax error at or near "CONFLICT"'),
        (r"^(?:insert|update|delete|merge|with)\b.*\breturning\b", SYNTAX, 'syntax error at or near "RETURNING"'),
        (r"\bdistinct on \(", UNSUPPORTED, "SELECT DISTINCT ON is not supported"),
        (r"^(?:savepoint|release)\b", UNSUPPORTED, "SQL command not supported: SAVEPOINT"),
        (r"^rollback (?:work |transaction )?to\b", UNSUPPORTED, "SQL command not supported: ROLLBACK TO"),
        (r"^create (?:unique )?index\b", UNSUPPORTED, "SQL command not supported: CREATE INDEX"),
        (r"^create (?:temp |temporary )?sequence\b", UNSUPPORTED, "SQL command not supported: CREATE SEQUENCE"),
        (
            r"^create (?:trigger|domain|type|extension|rule|unlogged|foreign)\b",
            UNSUPPORTED,
            "SQL command not supported",
        ),
        (r"^create (?:temp |temporary )?table\b.*\b(?:check|exclude) \(", UNSUPPORTED, "constraint not supported"),
        (r"\barray \[|\w \[ \]", UNSUPPORTED, "ARRAY constructors and types are not supported"),
        (rf":: {_FOREIGN_TYPES}\b|\bas {_FOREIGN_TYPES} \)", "42704", "type does not exist"),
        (
            rf"^(?:create|alter) (?:temp |temporary )?table\b.*(?:[(,]|\badd column) \w+ {_FOREIGN_TYPES}\b",
            UNSUPPORTED,
            "column has unsupported type",
        ),
        (r"(?:\b(?:from|join)|,) \( values\b", SYNTAX, 'syntax error at or near "VALUES"'),
        (r"^with\b.*\bas \( (?:insert|update|delete|merge)\b", SYNTAX, "data-modifying WITH is not supported"),
        (r"^with\b.*\) merge into\b", SYNTAX, 'syntax error at or near "MERGE"'),
        (
            r"^(?:insert|create|delete|update)\b.*\bgenerate_series \(",
            UNSUPPORTED,
            "Specified types or functions (one per INFO message) not supported on Redshift tables.",
        ),
        (rf"\b(?!{_JSON_FUNCTIONS}\b){_FOREIGN_FUNCTIONS} \(", "42883", "function does not exist"),
        (r"\b(?:current_timestamp|localtimestamp|current_time)\b", UNSUPPORTED, "leader-node function, use getdate()"),
        (r"^delete from [\w.]+ (?!using\b|where\b)\w+", SYNTAX, "syntax error: a DELETE target has no alias"),
        (r"^merge into [\w.]+ (?!using\b)\w+", SYNTAX, "syntax error: a MERGE target has no alias"),
        (r"^merge\b.*\bwhen (?:not )?matched and\b", SYNTAX, 'syntax error at or near "AND"'),
        (r"^merge\b.*\bdo nothing\b", SYNTAX, 'syntax error at or near "DO"'),
        (r"^merge\b.*\bby (?:source|target)\b", SYNTAX, 'syntax error at or near "BY"'),
        (
            r"^merge\b(?!.*\bwhen matched then (?:(?!when ).)*\bwhen not matched then (?:(?!when ).)*$)",
            SYNTAX,
            "MERGE needs exactly one WHEN MATCHED and then one WHEN NOT MATCHED",
        ),
        (r"^alter table\b.*\badd\b.* , (?:add|drop|alter)\b", SYNTAX, 'syntax error at or near ","'),
        (r"^alter table\b.*\b(?:add|drop) column if\b", SYNTAX, 'syntax error at or near "IF"'),
        (
            r"^alter table\b.*\balter column \w+ (?:drop|set) not null",
            UNSUPPORTED,
            "ALTER COLUMN NOT NULL is not supported",
        ),
        (r"\bis (?:not )?distinct from\b", SYNTAX, 'syntax error at or near "DISTINCT"'),
        (r"\bcollate c\b", UNSUPPORTED, "COLLATE is not supported in this form"),
        (r"\) filter \( where\b", SYNTAX, 'syntax error at or near "("'),
        (r"\b(?:except|intersect) all\b", UNSUPPORTED, "EXCEPT ALL and INTERSECT ALL are not supported"),
        (r"\bfor (?:no key )?(?:update|share)\b", UNSUPPORTED, "SELECT FOR UPDATE is not supported"),
        (r"\blateral\b", SYNTAX, 'syntax error at or near "LATERAL"'),
        (r"\bon commit (?:drop|delete|preserve)\b", SYNTAX, 'syntax error at or near "COMMIT"'),
        (
            rf"\b{_AGGREGATES} \([^()]*\) over \( (?=[^()]*\border by\b)(?![^()]*\brows\b)",
            SYNTAX,
            "Aggregate window functions with an ORDER BY clause require a frame clause",
        ),
        (r"\b(?:numeric|decimal) \( (?:39|[4-9]\d|\d{3,})\b", "22023", "DECIMAL precision must be between 1 and 38"),
        (r"; \S", SYNTAX, "cannot insert multiple commands into a prepared statement"),
    )
)
_REFUSED_IN_BLOCK = (
    (re.compile(r"^alter table\b.*\balter column\b"), "ALTER TABLE ALTER COLUMN cannot run inside a transaction block"),
    (re.compile(r"^vacuum\b"), "VACUUM cannot run inside a transaction block"),
    (re.compile(r"^(?:create|drop) database\b"), "CREATE/DROP DATABASE cannot run inside a transaction block"),
)


def refuse(parts: Sequence[Token], status: bytes) -> None:
    """Raises Refused if Redshift would not take this statement in this transaction status."""
    text = normal(parts)
    for pattern, code, message in _RULES:
        if pattern.search(text):
            raise Refused(code, message)
    if status != wire.IDLE:
        for pattern, message in _REFUSED_IN_BLOCK:
            if pattern.search(text):
                raise Refused(IN_BLOCK, message)
