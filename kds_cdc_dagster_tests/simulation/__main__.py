"""`python -m kds_cdc_dagster_tests.simulation --first N --seeds M [--trace]`."""
from __future__ import annotations
import sys,time
from kds_cdc_dagster_tests.simulation.schedule import simulate
first=int(sys.argv[1]); n=int(sys.argv[2]); trace=len(sys.argv)>3
t=time.perf_counter(); acc=0
for s in range(first,first+n):
    o=simulate(s); acc+=o.accepted
    if o.findings:
        print(s,o.findings[:4])
        if trace: print("\n".join(o.trace)); 
print((time.perf_counter()-t)/n*1e3,"ms per seed",acc/n)
