# Arrays in one file; arguments of the module's class on the command line.
python data.py
privplan check-data signals.npz --model nets:Net --model-args '{"blocks": 1}'
privplan solve spec.yaml -o plan.json
privplan simulate plan.json --algorithm planned --data signals.npz --model nets:Net --model-args '{"blocks": 1}' --seed 1 -o run
privplan verify run
