"""Like ActNN's exp_mem_speed: starts the benchmark once for each algorithm, through the shell."""

import json
import os
import sys

for alg in sys.argv[1:]:
    os.environ["DEBUG_MEM"], os.environ["DEBUG_SPEED"] = "False", "True"
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "actnn_benchmark.py")
    if os.system(f"python3 {script} --alg {alg} -b 16") != 0:
        with open("speed_results.json", "a") as file:
            file.write(json.dumps({"algorithm": alg, "ips": -1}) + "\n")
