# Images by client and class, groups of the clients from a CSV file.
python data.py
privplan check-data faces --groups groups.csv --model nets:Net
privplan solve spec.yaml -o plan.json
privplan simulate plan.json --algorithm planned --data faces --groups groups.csv --classes dark,bright --model nets:Net --seed 1 -o run
privplan verify run
