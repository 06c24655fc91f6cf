"""What a Redshift database has by itself and PostgreSQL has not: functions, system tables and views."""

SYSTEM_OBJECTS = r"""
create function getdate() returns timestamp stable language sql as 'select localtimestamp(0)';

create function json_parse(value text) returns jsonb stable strict language plpgsql as $$
begin
  -- Two errors of Redshift's JSON_PARSE with its default settings: a repeated key, of which a setting keeps the last,
  -- and a string above 65,535 bytes.
  if coalesce(current_setting('rs.json_parse_dedup_attributes', true), '') <> 'on'
     and value is json and not value is json with unique keys then
    raise exception 'Duplicate attribute names in SUPER value' using errcode = 'XX000';
  end if;
  if octet_length(value) > 65535 and exists (
    select from jsonb_path_query(value::jsonb, '$.** ? (@.type() == "string")') s where octet_length(s #>> '{}') > 65535
  ) then
    raise exception 'String value exceeds the max size of 65535 bytes' using errcode = 'XX000';
  end if;
  return value::jsonb;
end $$;
create function can_json_parse(value text) returns boolean immutable strict language sql as 'select value is json';
create function json_serialize(value jsonb) returns text immutable strict language sql as 'select value::text';
create function to_varbyte(value text, form text) returns bytea immutable strict language sql
  as 'select decode(value, form)';
create function from_varbyte(value bytea, form text) returns text immutable strict language sql
  as 'select encode(value, form)';

create function pg_last_copy_count() returns bigint stable language sql
  as $$ select coalesce(nullif(current_setting('rs.last_copy_count', true), ''), '0')::bigint $$;
create function pg_last_unload_count() returns bigint stable language sql
  as $$ select coalesce(nullif(current_setting('rs.last_unload_count', true), ''), '0')::bigint $$;

create view stv_db_isolation_level as
  select oid::int as db_id, datname::char(128) as db_name, 'Snapshot Isolation'::char(128) as isolation_level
  from pg_database where datname = current_database();

create table sys_load_error_detail (
  user_id int default 100, query_id bigint default 0, table_id int, start_time timestamp default localtimestamp,
  file_name char(256), line_number bigint, column_name char(127), column_type char(10), column_length char(10),
  position int default 0, error_code int, error_message char(512)
);

create view svv_columns as
  select table_catalog, table_schema, table_name, column_name, ordinal_position::int, is_nullable,
    case udt_name when 'jsonb' then 'super' when 'bytea' then 'binary varying' else data_type end as data_type,
    character_maximum_length::int, numeric_precision::int, numeric_scale::int
  from information_schema.columns;
-- Stands in for information_schema.columns, which on Redshift does not know late-binding views.
create view columns as
  select c.* from information_schema.columns c
  where obj_description(format('%I.%I', table_schema, table_name)::regclass) is distinct from 'late-binding';
create view svv_tables as
  select table_catalog, table_schema, table_name, table_type from information_schema.tables;
"""
