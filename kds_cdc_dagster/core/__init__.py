"""Pure rules: what happens to a message and to a row. No clock, no I/O, nothing imported from above."""
