# A Parquet table, an own loss, and another metric of the task.
python data.py
privplan check-data houses.parquet --task regression --label price --client agency --group consent --statistics statistics.json --model nets:Net
privplan solve spec.yaml -o plan.json
privplan simulate plan.json --algorithm planned --data houses.parquet --task regression --label price --client agency --group consent --statistics statistics.json --model nets:Net --loss nets:loss --metric mae --seed 1 -o run
privplan verify run
