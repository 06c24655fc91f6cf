"""What Redshift does and PostgreSQL does not: COPY, UNLOAD, views that bind late, TRUNCATE's commit, error texts."""

from __future__ import annotations

from collections.abc import Callable

from kds_cdc_dagster_tests.redshift import copy, unload, wire
from kds_cdc_dagster_tests.redshift.backend import Backend
from kds_cdc_dagster_tests.redshift.copy import Copy
from kds_cdc_dagster_tests.redshift.faults import SERIALIZABLE
from kds_cdc_dagster_tests.redshift.plan import Plan
from kds_cdc_dagster_tests.redshift.rewrite import BYTES_CHECK, KEY_CHECK, widening
from kds_cdc_dagster_tests.redshift.site import Site
from kds_cdc_dagster_tests.redshift.unload import Unload
from kds_cdc_dagster_tests.redshift.wire import Frame, Refused, ServerError

_BIND_COMPLETE = Frame(b"2")


class Emulation:
    """Performs statements on a session's backend, by statements of its own."""

    def __init__(self, backend: Backend, site: Site) -> None:
        self._backend = backend
        self._site = site

    def instead(self, planned: Plan, midway: Callable[[], None]) -> list[Frame] | None:
        """Replies to a statement that PostgreSQL never sees; None for the others. Raises Refused."""
        if copied := planned.copy:
            return self._whole(lambda: self._copied(copied, midway))
        if unloaded := planned.unload:
            return self._whole(lambda: self._unloaded(unloaded, midway))
        if planned.replaces_view:
            return self._whole(lambda: self._replaced(planned))
        if planned.widened:
            return self._widened(*planned.widened)
        return None

    def after(self, planned: Plan) -> None:
        """What remains to be done after PostgreSQL has run the statement."""
        if planned.literal_columns[1]:
            self._narrow(*planned.literal_columns)
        if planned.is_truncate and self._backend.status == wire.IN_TRANSACTION:
            self._backend.query("commit")  # TRUNCATE commits the transaction it runs in

    def _whole(self, work: Callable[[], list[Frame]]) -> list[Frame]:
        """Several statements: in a transaction of their own where the client has none."""
        is_own = self._backend.status == wire.IDLE
        if is_own:
            self._backend.query("begin")
        try:
            replies = work()
        except Exception:
            if is_own:
                self._backend.query("rollback")
            raise
        if is_own:
            self._backend.query("commit")
        return replies

    def _copied(self, command: Copy, midway: Callable[[], None]) -> list[Frame]:
        self._site.check_role(command.options)
        try:
            rows = copy.run(command, self._backend, self._site.s3)
        except copy.LoadError as error:
            self._site.record_load_error(error.row)
            raise
        midway()
        text = f"Load into table '{command.table}' completed, {rows} record(s) loaded successfully."
        return self._counted("copy", rows, text)

    def _unloaded(self, command: Unload, midway: Callable[[], None]) -> list[Frame]:
        self._site.check_role(command.options)
        rows = unload.run(command, self._backend, self._site.s3, midway)
        return self._counted("unload", rows, f"UNLOAD completed, {rows} record(s) unloaded successfully.")

    def _counted(self, verb: str, rows: int, text: str) -> list[Frame]:
        self._backend.query(f"select set_config('rs.last_{verb}_count', '{rows}', false)")
        return [_BIND_COMPLETE, wire.notice(text), wire.complete(verb.upper())]

    def _replaced(self, planned: Plan) -> list[Frame]:
        """A late-binding view, whatever columns it had before."""
        self._backend.query(f"drop view if exists {planned.replaces_view}")
        self._backend.query(planned.text)
        self._backend.query(f"comment on view {planned.replaces_view} is 'late-binding'")
        return [_BIND_COMPLETE, wire.complete("CREATE VIEW")]

    def _widened(self, table: str, column: str, size_bytes: int) -> list[Frame]:
        current = self._backend.query(
            f"select atttypmod - 4 from pg_attribute where attrelid = '{table}'::regclass and attname = '{column}'"
        ).values
        if current and current[0][0] == str(size_bytes):
            raise Refused("0A000", "target column size should be different")
        # Late-binding views hold no column fast: here they are made anew around it.
        views = self._backend.query(_LATE_BINDING.format(table=table)).values
        for name, _ in views:
            self._backend.query(f"drop view {name}")
        self._backend.query(widening(table, column, size_bytes))
        for name, select in views:
            self._backend.query(f"create view {name} as {select}")
            self._backend.query(f"comment on view {name} is 'late-binding'")
        return [_BIND_COMPLETE, wire.complete("ALTER TABLE")]

    def _narrow(self, table: str, columns: dict[str, int]) -> None:
        """CREATE TABLE AS gives a bare literal's column the literal's width; PostgreSQL makes it `text`."""
        query = f"select attname from pg_attribute where attrelid = '{table}'::regclass and atttypid = 'text'::regtype"
        for (name,) in self._backend.query(query).values:
            if size_bytes := columns.get(str(name)):
                check = f'constraint "{BYTES_CHECK}{name}" check (octet_length({name}) <= {size_bytes})'
                self._backend.query(f"alter table {table} add {check}")


_LATE_BINDING = """
select c.oid::regclass::text, pg_get_viewdef(c.oid) from pg_class c
where c.relkind = 'v' and obj_description(c.oid) = 'late-binding' and exists (
  select from pg_depend d join pg_rewrite r on d.objid = r.oid
  where r.ev_class = c.oid and d.refobjid = '{table}'::regclass)
"""


def as_redshift(error: ServerError) -> ServerError:
    """PostgreSQL's error in Redshift's words where they differ."""
    if error.code == "40001":
        return SERIALIZABLE
    if error.code == "23514" and BYTES_CHECK in error.message:
        column = error.message.rpartition(BYTES_CHECK)[2].strip('"')
        return ServerError("22001", "Value too long for character type", f"column {column}")
    if error.code == "23514" and KEY_CHECK in error.message:
        return ServerError("23502", "Cannot insert a NULL value into a key column")
    return error
