# Texts by author as token ids; only the adapters of a frozen transformer leave the clients.
privplan check-data data:data --model nets:build
privplan solve spec.yaml -o plan.json
privplan simulate plan.json --algorithm planned --data data:data --model nets:build --seed 1 -o run
privplan verify run
