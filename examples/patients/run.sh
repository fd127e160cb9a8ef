# A table of visits: patients are the clients, their consent is the privacy group.
python data.py
privplan check-data patients.csv --task binary --label relapse --client patient --group consent --statistics statistics.json --model nets:Net
privplan solve spec.yaml -o plan.json
privplan simulate plan.json --algorithm planned --data patients.csv --task binary --label relapse --client patient --group consent --statistics statistics.json --model nets:Net --metric f1 --seed 1 -o run
privplan verify run
