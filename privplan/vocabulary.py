"""The words of other tools: what they mean here, on any road a user comes.

The command line, specs and Python ask the same tables. Words are compared without case,
hyphens and underscores, so that ``noiseMultiplier`` is ``--noise-multiplier``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from math import isinf

# Each line has words of one meaning; the first that a place takes is meant.
_EQUAL = """
epsilon eps target_epsilon privacy_budget budget max_epsilon epsilon_target epsilons \
get_epsilon compute_epsilon epsilon_spent get_privacy_spent privacy_spent total_epsilon
budget epsilon
planned epsilon
delta target_delta get_delta failure_probability
noise_multiplier sigma noise noise_scale std stddev z get_noise_multiplier \
noise_multipliers noise_level noise_std sigmas
sampling_ratio sample_rate q sampling_rate sampling_probability subsampling_rate \
client_fraction fraction_fit participation_rate fraction ratio sampling_ratios
cohort cohort_size clients_per_round min_fit_clients num_sampled_clients fraction_fit \
participants min_available_clients client_fraction cohorts
rounds num_rounds n_rounds steps num_steps iterations n_iterations global_rounds \
max_rounds communication_rounds total_rounds comm_round server_rounds
clients n num_clients n_clients population size num_users n_users members patients \
users people persons population_size
contributions max_contributions max_records_per_user contribution_bound group_size
clipping_norm max_grad_norm clip clip_norm clipping_threshold l2_norm_clip clipping \
grad_clip gradient_clipping sensitivity clipping_bound max_norm l2_sensitivity \
clipping_norms gradient_clip_val
sampling sampler sampling_law sampling_method amplification sampling_scheme subsampling
relation neighbors neighbours neighboring neighbouring adjacency neighboring_relation \
neighbouring_relation neighborhood adjacency_relation
unit privacy_unit level protect granularity
person privacy_subject subject who
groups group privacy_groups tiers budgets privacy_levels cohorts
group groups tier budget_group stratum
accountant accountants accounting accounting_method
learning_rate lr eta client_lr local_lr step_size client_learning_rate alpha
learning_rate_decay lr_decay decay gamma
local training client_training local_training train fit_config local_config
server server_optimizer strategy server_optimiser aggregator
epochs local_epochs num_epochs n_epochs client_epochs local_ep E max_epochs epoch
steps local_steps tau
batch_size bs batch local_bs minibatch_size mini_batch_size batch_sz
momentum beta
model net network architecture module arch model_class model_name estimator
parameters num_parameters n_parameters num_params n_params params d
initial pretrained init_weights warm_start initial_weights weights initial_model \
start_from
name title study study_name run_name
ratios objective allocation allocator
jobs n_jobs workers num_workers processes executor parallel n_workers max_workers \
concurrency nproc njobs threads num_processes
workers jobs n_jobs num_workers processes
on backend cluster scheduler distributed address executor engine runner
seeds n_seeds num_seeds seed repeats n_repeats trials n_runs num_runs repetitions \
replicates
seed random_state random_seed rng manual_seed rng_seed seeds
first_seed seed base_seed start_seed
trials n_trials num_trials
algorithm method algo strategy aggregation_method optimizer_name aggregator
algorithms methods algos algorithm method strategies baselines baseline models
label target target_col y_col label_col target_column outcome labels class_col \
label_column response
client id user user_id client_col client_id patient patient_id subject subject_id \
client_column id_col user_col person_id clients entity
group group_col group_column stratum tier privacy_group
features feature_columns feature_cols x_cols inputs usecols columns input_columns
codes embedding_columns token_columns
test test_data test_set test_file eval_data validation_data holdout test_csv
test_share test_size test_fraction val_size validation_split test_split \
validation_fraction test_ratio val_split holdout_fraction split
metric metrics scoring eval_metric score_function measure
loss criterion objective loss_fn loss_function
dataset data_set benchmark data_name dataset_name
data input file csv path dataframe df source train_data training_data data_path \
data_file input_file
data_dir data_root root dataset_dir datadir data_folder data_path
partition split partitioner partitioning heterogeneity non_iid iid dirichlet alpha \
niid partition_method
hyperparameters hparams config params set kwargs hyperparams options
set hyperparameters param hparams hyperparameter config params p override
device gpu cuda use_gpu accelerator no_cuda gpu_id
canaries n_canaries num_canaries audit_canaries
track tracker tracking logger report_to logging experiment_tracker
callbacks callback hooks
noise rng secure secure_rng noise_source secure_mode
folder output out output_dir run_dir save_dir outdir save_to log_dir dest \
destination run_folder results_dir to_file file filename path
output out output_file save output_dir folder outfile to_file dest destination \
save_to save_as run_dir log_dir filename file path export
address book book_path db database book_file url db_path
plan approved approved_plan plan_file against plan_path reference
run run_dir folder run_folder path
format output_format fmt output_type type as
noise_key key noise_key_file key_file
population project study cohort_name site
from_book book continue_from
details verbose full long all
html page dashboard
force overwrite yes y f exist_ok replace
to framework target platform
of framework tool library
vary sweep param grid search_space
explain summary describe why interpret
to_frame table to_pandas to_csv to_dataframe dataframe frame df as_frame data_frame \
to_excel to_parquet results rows records to_table cv_results_ to_html trials_dataframe
plot show draw figure visualize visualise plt chart graph
kept ok passed success is_valid valid is_private satisfied
outcome verdict status result state passed
score accuracy test_accuracy test_score best_score best_score_ final_accuracy value \
mean acc
mean accuracy score test_accuracy average
deviation std sd stddev
by_group accuracy_by_group group_accuracy group_scores per_group scores_by_group
metrics history log logs curve learning_curve scores losses train_loss val_loss loss
model parameters state_dict weights best_model best_estimator_ net global_model \
trained_model
parse from_dict from_json from_mapping loads model_validate
load from_yaml from_csv from_json read_csv read open from_file load_plan load_spec \
load_csv read_plan parse_file from_path load_yaml load_json
from_table from_pandas from_dataframe from_df from_arrow from_dict from_polars \
from_frame
plain to_dict dict as_dict asdict model_dump items keys
to_json dumps json serialize as_json tojson to_dict as_dict
save to_yaml write dump export save_json to_file write_json to_disk store
solve plan optimize optimise make_plan allocate create_plan build_plan planner
train run simulate fit learn start fl federate execute
compare benchmark run_experiments experiment evaluate_all
verify verdict check validate audit_run certify_run is_kept
preset init template example default_spec get_preset load_preset
account accountant privacy_accountant get_epsilon compute_epsilon \
compute_dp_sgd_privacy compute_rdp get_privacy_spent RDPAccountant PRVAccountant \
GaussianAccountant PLDAccountant create_accountant rdp_accountant pld_accountant \
pld MomentsAccountant compute_rdp_sample_gaussian account_epsilon get_privacy_loss
calibrate get_noise_multiplier find_noise_multiplier calibrate_dp_mechanism \
calibrate_noise compute_noise get_sigma find_sigma solve_for_noise required_noise
what_if sweep grid_search whatif vary sensitivity_analysis
frontier pareto pareto_front tradeoff_curve privacy_utility_curve
tradeoff f_dp roc attack_curve trade_off mia_bound get_beta membership_inference
compose composition composed self_composed compose_mechanisms advanced_composition
load_run open_run read_run get_run search_runs restore
forecast predict_accuracy expected_accuracy estimate_accuracy utility
certificate epsilons bounds guarantee privacy_guarantee
history events releases dp_event ledger
upper upper_bound high
lower lower_bound low
spent used consumed total usage cost
left remaining available rest balance remaining_budget get_remaining
add record append log book register_run insert
solve_for unknown find optimize_for
poisson poisson_sampling bernoulli poissonsubsampling poisson_subsampled poisson_sample
fixed_size uniform without_replacement fixed swor uniform_sampling wor \
sample_without_replacement constant random
full all none everyone no_sampling full_batch full_participation
balls_in_bins shuffle shuffled shuffling permutation random_shuffling shuffle_model
random_allocation allocation
min_separation b_min_sep minsep
cyclic_poisson dp_ftrl mf matrix_factorization bandmf banded dpftrl \
matrix_factorisation
add_remove add_or_remove_one addremove unbounded add_or_remove add remove \
add_one remove_one add_or_remove_one_record
replace_one replace bounded substitute substitution change_one swap edit \
replace_special
rdp moments moments_accountant rdpaccountant renyi ma zcdp renyi_dp
prv prvaccountant gopi
pld pldaccountant connect_the_dots dp_accounting fft numerical google tight
closed_form gdp analytic analytical gaussian mu clt analytic_gaussian
client user device silo participant user_level client_level hospital patient person
record example sample row item_level instance record_level example_level \
sample_level item
secure csprng crypto os
cpu none host
cuda gpu nvidia cuda:all
mnist mnist_784
fashion-mnist fmnist fashionmnist fashion_mnist
cifar-10 cifar cifar10
cifar-100 cifar100
binary classification binary_classification
multi-class classification multiclass categorical
regression continuous
next-token language_modeling lm text causal_lm language language_model
json jsonl ndjson
markdown md
table text txt pretty
"""

# Words that nothing here is called, and what serves their purpose. A word with a dot is
# one of a command.
_PURPOSES = """
optimizer optim optimiser adam sgd adamw rmsprop nesterov weight_decay
    clients train by plain SGD with learning_rate and momentum of local in the spec; \
server: {optimizer: adam} moves the model by what is released
scheduler lr_scheduler warmup lr_schedule cosine
    local.learning_rate_decay of the spec is the factor on the rate after each round
early_stopping patience early_stop stop_early pruner prune
    a plan is spent to its last round; fewer rounds are a plan of their own, spec.rounds
checkpoint checkpoints save_every ckpt checkpoint_dir checkpoint_every save_checkpoint \
checkpoint_path save_freq
    runs keep checkpoints, and the same command resumes by itself
resume restart continue restore recover resume_from
    the same command resumes by itself
save_model export_model model_path save_weights save_state model_out checkpoint_file \
onnx to_onnx torchscript log_model save_pretrained
    privplan publish RUN -o BUNDLE writes model.safetensors; in Python \
simulate.train(...).model() returns the module
load_model run.model run.state_dict run.weights run.predict
    call simulate.train again with the same arguments and folder, which trains nothing, \
then .model(); of a table, run.model()(data.encode("new.csv")) are outputs
predict predictions predict_proba inference infer y_pred probabilities forward \
predict_fn evaluate score_samples decision_function transform
    simulate.train(...).model() returns a torch module, which is called with a tensor: \
run.model()(records), of a table run.model()(data.encode("new.csv"))
confusion_matrix classification_report roc_curve per_class accuracy_by_class
    run.record.accuracy_by_class in Python has the score of each class
amp fp16 bf16 mixed_precision half precision dtype float16
    runs compute in float32
accumulate accumulation gradient_accumulation virtual_batch_size \
max_physical_batch_size physical_batch_size accumulation_steps microbatches \
num_microbatches ghost_clipping grad_sample_mode
    updates of whole clients are clipped; local.batch_size of the spec is a mini-batch
cv folds k_fold kfold cross_validation n_splits cross_validate
    privplan compare --seeds N repeats runs; a test share is split off by --test-share
class_weight class_weights sample_weight smote oversample balance imbalance pos_weight
    --loss MODULE:NAME is a loss of your own, which may weight classes; --metric \
balanced-accuracy scores them alike
stratify shuffle_data
    test records are drawn by --test-share, or given by --test FILE
sep delimiter separator quotechar header skiprows
    the separator of a table is seen in its header
encoding_errors charset codec
    tables are read as UTF-8
index_col index row_id drop_index
    --features A,B names the columns that are inputs
drop exclude ignore drop_columns ignore_columns skip_columns
    --features A,B names the columns that are inputs
missing fillna dropna impute na_values imputer nan fill_missing imputation
    "fill" of each column in --statistics FILE.json stands where a value is missing
categorical categories one_hot ordinal categorical_features cat_cols onehot dummies \
get_dummies encode categorical_columns category
    "categories" of a column in --statistics FILE.json lists its values
normalize standardize standardise normalise scale scaler zscore standardscaler \
normalization scaling
    --statistics FILE.json says how columns are standardised
nrows limit subset max_samples sample max_records head n_samples num_samples \
max_train_samples subsample
    --dataset NAME:RECORDS takes so many of a data set's records; own data are read whole
sheet sheet_name excel xlsx xls sql query parquet_engine feather json_lines
    own data are FILE.csv, FILE.parquet, FILE.npz, a folder of images, or MODULE:FUNCTION
init.data init.from_data init.csv init.label init.client solve.data
    privplan check-data DATA prints what belongs in a spec
Data.head Data.n_features columns column_names dtypes info describe_data nunique
    privplan check-data DATA prints how a table is understood
account.mechanism account.scale account.laplace account.b mechanism noise_type \
noise_distribution laplace laplace_noise dp_mechanism exponential_mechanism \
LaplaceMechanism GaussianMechanism
    account and calibrate are of Gaussian noise; a count or mean with laplace noise is \
booked by privplan book declare NAME --noise laplace, and in Python is \
Release(math.sqrt(2) / epsilon, 1.0, "full", "laplace")
account.batch_size account.dataset_size account.sample_size account.num_examples \
account.epochs account.n account.num_samples account.number_of_examples
    --sampling-ratio is the batch over the records, and --rounds epochs over that ratio
calibrate.batch_size calibrate.dataset_size calibrate.sample_size calibrate.epochs \
calibrate.num_examples calibrate.n
    --sampling-ratio is the batch over the records, and --rounds epochs over that ratio
dataset_size sample_size num_examples number_of_examples data_size
    a sampling ratio is the batch over the records
eps_error tol tolerance precision delta_error epsilon_tolerance value_discretization
    there is no tolerance: bounds include what a float rounds
orders alphas rdp_orders renyi_orders alpha_orders
    the orders are chosen by the accountant, so that none is missed
privacyengine make_private make_private_with_epsilon privacy_engine attach \
DPOptimizer DPModel GradSampleModule DPKerasSGDOptimizer
    privplan.solve plans, simulate.train trains; in an Opacus program the guard: \
docs/adapters.md
dp_event from_dp_event GaussianDpEvent PoissonSampledDpEvent SelfComposedDpEvent \
from_event DpEvent
    history_from_event of docs/adapters.md reads an event
privacycurve epsilon_delta_curve delta_curve privacy_profile
    privplan.compose(history), whose .delta(epsilon) is the curve
zcdp rho concentrated
    every epsilon is at a delta; --accountant rdp is the nearest accounting
ldp local_dp local_privacy
    updates are noised in the sum; the unit client protects a client with all its data
secagg secure_aggregation smpc encryption homomorphic crypten tee
    a plan asks the server to see sums only; docs/threat-model.md says what is assumed
pate synthetic synthetic_data k_anonymity anonymize anonymise pseudonymize
    privplan plans federated training only
adaptive_clipping quantile target_quantile clipping_quantile
    planning.clipping of the spec lets the clipping norm follow a private quantile
mia lira membership_inference audit auditing empirical_epsilon attack_model
    simulate --canaries N audits a run, and privplan attack PLAN shows attacks
gdpr dpia compliance risk_assessment impact_assessment
    privplan report PLAN is a page for a board
pdf docx print word ppt pptx odt doc slides latex_report
    the page is HTML, which a browser prints as PDF
lang language locale de german translation i18n
    pages are in English, and a browser translates them
template logo theme report.title css style title_page author date brand dark dark_mode
    the page is one HTML file, which an editor may change
email mail send notify slack webhook
    nothing is sent; the page is one file, which you can attach
sign signature approve approval signed sign_off
    privplan attest keys new FILE makes a key, and signers in the spec names who signs
json to_stdout stdout
    --format json
csv excel_export xlsx_export to_sheet
    --format json, or in Python .to_frame().to_csv(path)
open browser view show_page
    the page is one file, which a browser opens; privplan app opens a page by itself
list list_all ls available choices options_list show_all
    simulate --algorithms, and --help of --dataset and --preset, list names
dry_run no_train simulate_only check_only plan_only noop preview what_would
    privplan solve trains nothing, nor does simulate --plan-only FILE
gpus num_gpus n_gpus devices gpu_ids
    compare --jobs N gives each job a GPU, --device cuda:N names one, and processes share \
a run under torchrun --nproc-per-node N -m simulate PLAN
slurm dask
    --on slurm:NAME=VALUE,... or --on dask://HOST:PORT, of compare
compare.shard compare.shards compare.part compare.node_id
    --on CLUSTER spreads the runs; by hand each machine takes some by --first-seed and \
--seeds
nproc nproc_per_node world_size master_addr rank local_rank ddp fsdp nnodes \
node_rank dist_url simulate.workers simulate.num_workers simulate.jobs simulate.n_jobs \
simulate.processes simulate.backend simulate.distributed simulate.parallel
    processes share a run under torchrun --nproc-per-node N -m simulate PLAN
time timeout time_limit walltime max_time max_hours deadline timeout_min
    compare --on slurm:timeout_min=60 limits a job; simulate stops at Ctrl-C and resumes
partition_name queue account_name qos gres nodes ntasks mem cpus cpus_per_task nodelist \
mem_gb slurm_partition job_name constraint sbatch srun exclusive
    compare --on slurm:NAME=VALUE,... passes what submitit calls it, such as \
slurm_partition=gpu
k8s kubernetes helm kubectl docker image container singularity pod namespace apptainer
    compare --on dask://HOST:PORT asks Dask workers, on Kubernetes too: docs/scale.md
ssh host hostfile hosts server_address machine mpirun mpi
    compare --on dask://HOST:PORT asks Dask workers, wherever they run
ray num_gpus_per_client client_resources ray_init_args spark
    --jobs N spreads runs over processes and GPUs, --on dask://HOST:PORT over machines
retries retry max_retries fault_tolerance requeue
    the same command resumes what is not finished
batch_clients clients_per_batch chunk_size chunk client_chunk clients_per_chunk
    how many clients train at once follows from the memory
train.mu train.prox train.proximal train.rho train.radius train.temperature train.lam \
train.kappa train.head_rate train.smoothing
    a hyperparameter of a method: write hyperparameters={"NAME": NUMBER}
mu prox proximal rho radius temperature lambda lam kappa head_rate smoothing
    a hyperparameter of a method is set by --set NAME=NUMBER; simulate --algorithms \
lists methods and theirs
compile torch_compile jit
    chains of common layers are trained by kernels of their own, without an option
port bind listen
    privplan app SPEC --port N
config config_file yaml settings configfile c conf
    a spec holds the settings of a plan, SPEC; options those of a run
env environment env_file dotenv
    PRIVPLAN_DATA, PRIVPLAN_BOOK are the environment variables
debug log_level loglevel trace log logging_level info
    -v logs each step, -vv details
progress progress_bar no_progress tqdm silent
    --quiet shows the result only
no_color color colour no_colour
    colours are left out where output is no terminal, or NO_COLOR is set
version v
    privplan --version
install_completion completion show_completion autocomplete
    there is no completion; privplan --help lists commands
upgrade update self_update migrate
    pip install --upgrade privplan; files of older versions are read as they are
undo delete remove reset clear drop_run revert purge refund forget unlearn erase
    what was released stays spent; another book is --address FILE
dates date_columns datetime parse_dates
    a column is numbers or categories; a date becomes a number, such as days, before
Spec.data Spec.dataset Spec.csv Spec.train_data Spec.label Spec.features
    data are named where a plan is trained: simulate PLAN --data FILE, or --dataset NAME
add.note add.notes add.comment add.description add.remark add.memo add.tag add.tags
    the book keeps no remarks; a run is named by its folder, --population by whose it is
description note notes comment tags abstract remark remarks memo
    name is the only text of a spec; a YAML comment, # ..., holds more
memory ram mem_limit
    compare --on slurm:mem_gb=8 sets the memory of a job
cancel kill stop abort pause
    Ctrl-C ends a run, which the same command resumes
simple plain_language short brief
    the first lines of explain and a report say it in plain words
solve.set solve.override solve.params
    a field is changed in the spec, or in Python by spec.replace; privplan what-if SPEC \
--vary varies one
explain.group explain.groups explain.tier
    explain says it of every group; in Python plan.certificate['strict'] is of one
calibrate.cohort account.cohort calibrate.cohort_size account.cohort_size
    --sampling-ratio is the cohort over the clients
verify.delta verify.target_delta
    a run is judged at the deltas of its plan; privplan book show --delta asks at another
reproduce.dry_run reproduce.list_rows reproduce.preview reproduce.quick reproduce.small
    reproduce --list names the tables; --rows and --seeds 1 run a part of one
explain.o explain.output explain.out explain.save explain.html explain.pdf
    privplan report PLAN -o page.html writes a page
compare.tune compare.tuned compare.tuning
    privplan compare PLAN --algorithms A,B --tune in the shell tunes each method
init.groups init.group init.clients init.epsilon init.delta init.rounds init.budget \
init.name init.n_groups init.num_groups init.tiers
    --interactive asks for groups, clients and budgets; else a spec is written from a \
--preset, and its lines are changed there
compare.latex compare.csv compare.tex
    the folder of a comparison has results.tex and results.csv
verify.output verify.out verify.save
    RUN/verdict.json is written; privplan report RUN -o page.html writes a page
simulate.epochs train.epochs compare.epochs simulate.local_epochs train.local_epochs \
simulate.n_epochs train.n_epochs simulate.num_epochs train.num_epochs
    the spec says how clients train: local.steps, or with unit: record local.epochs
Spec.partition Spec.dirichlet Spec.alpha Spec.partitioner
    how a run's records are dealt is said to it: simulate PLAN --partition dirichlet:0.3
Spec.seed Spec.random_state Spec.seeds
    a seed is of a run: simulate PLAN --seed 3
report.against report.versus report.compare report.other report.with report.baseline
    several plans stand side by side: privplan report a.json b.json
account.mu compose.mu calibrate.mu
    one round of everybody with noise multiplier 1 / mu: --sampling full --rounds 1
reproduce.table reproduce.tables reproduce.figure reproduce.number
    the number is part of the name, as in hyperfl-table-5; reproduce --list names all
export.format export.f export.type export.kind
    the framework is named by --to, such as --to flower
simulate.overwrite simulate.force simulate.exist_ok compare.overwrite compare.force
    finished runs stay as they are; a new one goes to another folder, -o FOLDER
simulate.seeds simulate.n_seeds simulate.num_seeds simulate.repeats \
simulate.n_repeats simulate.trials simulate.n_runs
    privplan compare PLAN --algorithms NAME --seeds N runs a method with seeds 0 to N - 1; \
simulate --seed N is one run
attack.kind attack.type attack.method attack.name attack.mode attack.attacks
    an attack is named by --attack, such as --attack membership
add.name add.label add.run
    a run is named by its folder and digest; --population says whose groups it has
alert threshold warn limit_epsilon stop_at max_spent cap
    privplan book open ACCOUNT --epsilon E refuses what exceeds it
login user_name password token auth
    --address takes a SQLAlchemy address, with the name of its user
until expiry expires ttl valid_until
    privplan book reserve PLAN --expires-days N
what-if.set what-if.param what-if.params what-if.override
    values are named without dashes, as in groups.strict.epsilon=1,2
verify.strict verify.fail verify.fail_on_broken verify.exit_code
    the exit code is 0 only of a run that is kept: docs/reference/exit-codes.md
start_date end_date since from_date
    privplan book show names all runs
best best_params best_params_ winner best_trial best_run argmax rank ranking
    print(comparison) says which method leads within the budgets; a row has .mean, and \
.unit says whom it protects
significance p_value ttest confidence_interval wilcoxon ci
    a comparison shows mean and deviation over seeds; to_frame() has each seed
simulate.Algorithm simulate.Strategy FedAvg FedProx FedAdam FedYogi FedOpt \
simulate.Client NumPyClient ClientApp ServerApp simulate.Server ClientManager \
simulate.Aggregator simulate.method
    a method is named, algorithm="FedAvg"; one of your own is a function, as \
docs/reference/own-method.md shows
simulate.algorithms list_algorithms available_algorithms list_methods
    simulate.algorithms.registry.ALGORITHMS.names() in Python, and privplan simulate \
--algorithms in the shell, list them
start_simulation start_server run_simulation flwr
    simulate.train(plan, dataset="digits"), or in Flower the guard: docs/adapters.md
datasets load_dataset get_dataset load_digits load_mnist DataLoader Dataset Loader
    simulate.train(plan, dataset="digits") names a data set, \
data=simulate.Data.load(path, label=...) reads one
"""

# Calls in Python: of a kind of value where a word has a dot, else of all.
_CALLS = """
Spec
    privplan.Spec.parse({"name": ..., "groups": [...]}), or privplan.Spec.load(path)
Plan
    privplan.solve(spec), or privplan.Plan.load(path)
load
    privplan.Plan.load(path), privplan.Spec.load(path) or privplan.load_run(folder)
Group
    {"name": "strict", "clients": 100, "epsilon": 2} in Spec.parse
simulate
    import simulate, then simulate.train(plan, dataset='digits')
train
    simulate.train(plan, dataset='digits')
compare
    simulate.compare(plan, ['planned', 'FedAvg'])
explain
    plan.explain()
plot
    plan.plot()
verify
    privplan.verify('run')
to_json
    json.dumps(spec.plain())
history
    plan.history('strict')
epsilon
    privplan.account(history, delta=1e-5).epsilon
noise_multiplier
    privplan.calibrate(1, delta=1e-5, sampling_ratio=0.02, rounds=50)
score
    run.record.accuracy
register register_algorithm
    from simulate.algorithms.registry import register
Hyperparameter
    from simulate.algorithms.registry import Hyperparameter
to_latex
    open('FOLDER/results.tex') in the folder of the comparison
Verdict.explain
    print(verdict), or .checks and .groups of it
TrainedRun.explain
    print(run), print(run.verdict) or run.plan.explain()
Certificate.explain Comparison.explain Book.explain
    print(...) of it
Spec.save
    yaml.safe_dump(spec.plain())
Spec.solve
    privplan.solve(spec)
Plan.epsilon Plan.certificate
    plan.certificate['strict'].epsilon
Plan.delta
    plan.groups['strict'].delta
Plan.noise_multiplier
    plan.groups['strict'].noise_multiplier
Plan.sampling_ratio
    plan.groups['strict'].sampling_ratio
Plan.plain Verdict.plain
    .to_json()
Plan.from_json Plan.from_yaml Plan.from_file Plan.read Plan.open Plan.load_json \
Plan.load_plan Plan.from_path
    privplan.Plan.load(path)
Plan.from_dict Plan.from_mapping Plan.loads
    privplan.Plan.parse(data), whose data json.load gives
Plan.create Plan.new Plan.from_spec
    privplan.solve(spec)
Spec.from_dict Spec.from_mapping Spec.create Spec.new
    privplan.Spec.parse({"name": ..., "groups": [...]})
Plan.to_yaml Plan.dump
    .save(path)
Spec.from_json Spec.from_yaml Spec.from_file Spec.read Spec.open Spec.load_yaml \
Spec.load_spec Spec.from_path
    privplan.Spec.load(path)
Verdict.load Verdict.from_json Verdict.from_file Verdict.parse Verdict.read Verdict.open
    privplan.verify('run')
History.parse History.load History.from_json History.from_list
    privplan.History([(privplan.Release(1.5, 0.02), 50)])
groups.keys
    .names
groups.get
    ['strict']
groups.to_frame groups.plot
    .to_frame() or .plot() of the plan, spec, verdict or book that has them
SamplingLaw.sampling_ratio
    release.sampling_ratio, or plan.groups['strict'].sampling_ratio
SamplingLaw.name SamplingLaw.value
    str(law)
ComparisonRow.scores
    .accuracies
ComparisonRow.seeds
    [record.seed for record in row.records]
groups.items groups.values
    for group in plan.groups
Spec.epsilon
    spec.groups['strict'].epsilon
Spec.to_yaml Spec.dump
    yaml.safe_dump(spec.plain())
Interval.epsilon Interval.delta
    .upper, or .lower
CertificateRow.epsilon Spending.epsilon
    .epsilon_upper
Bundle.epsilon
    bundle.plan.certificate['strict'].epsilon
RunRecord.epsilon
    privplan.verify('run').groups['strict'].realised_upper
Comparison.epsilon
    comparison['planned'].spent('strict')
ComparisonRow.epsilon
    .spent('strict')
Book.epsilon
    book.spent()['strict'].epsilon_upper
History.epsilon
    privplan.account(history, delta=1e-5).epsilon
Data.plain Data.save Data.to_json
    .x, .y, .client and .group, which it keeps as they were given
Plan.solve Spec.plan
    privplan.solve(spec)
Plan.simulate Plan.train
    simulate.train(plan, dataset='digits')
Remaining.epsilon
    .headroom, which is left of .budget
GroupVerdict.epsilon
    .budget, .planned or .realised_upper
Run.history TrainedRun.history
    run.metrics
Run.epsilon TrainedRun.epsilon Verdict.epsilon
    privplan.verify('run').groups['strict'].realised_upper
TrainedRun.save
    torch.save(run.model().state_dict(), 'model.pt')
Run.model
    simulate.train(...) with the same arguments and folder, which trains nothing, and \
.model(); of a bundle, module.load_state_dict(safetensors.torch.load_file(\
'bundle/model.safetensors'))
Run.verify
    privplan.verify(run)
TrainedRun.accuracy
    run.score
Run.groups TrainedRun.groups
    run.plan.groups
Comparison.score Comparison.accuracy
    comparison['planned'].mean
Comparison.by_group Comparison.metrics
    comparison.to_frame()
Run.by_group Run.accuracy_by_group
    run.record.accuracy_by_group
Run.by_class Run.accuracy_by_class
    run.record.accuracy_by_class
Book.show Book.plot Book.display
    print(book), or book.spent('strict')
Book.load Book.open Book.read Book.connect
    privplan.Book(path)
Comparison.save Comparison.write
    comparison.to_frame().to_csv(path)
"""

# Commands by what else they may be called; one of a group follows the group's name.
_COMMANDS = """
privplan simulate
    train fit run launch start execute learn run_simulation fl resume
privplan solve
    plan optimize optimise allocate make_plan create_plan
privplan verify RUN
    status check_run audit inspect_run
privplan solve SPEC for a spec, verify RUN for a run, check-data DATA for data
    validate check validate_all lint_spec
privplan check-data DATA
    data load load_data inspect_data describe_data profile read import ingest preview
privplan explain PLAN, or privplan report PLAN
    show describe view display summary info cat print inspect details
privplan solve SPEC --plot PICTURE, or privplan report PLAN
    plot draw figure chart picture
privplan report RUN, or privplan.load_run(folder) in Python
    runs history ls results experiments logs log metrics
privplan solve --details, or privplan explain PLAN
    certificate certify guarantee proof bounds groups group
privplan report a.json b.json
    diff side_by_side compare_plans
privplan report
    export_report html page summary_page dashboard_page dpia
privplan account
    epsilon compute_epsilon get_epsilon compute_dp_sgd_privacy accountant budget cost \
privacy
privplan calibrate
    noise get_noise_multiplier find_noise sigma calibrate_noise
privplan book
    ledger spent spend balance
privplan init
    new create template scaffold start_project example presets preset
privplan --help, or privplan simulate --algorithms
    list commands
privplan simulate --algorithms
    algorithms methods list_algorithms strategies
privplan simulate --help, whose --dataset names them
    datasets models list_datasets download fetch
privplan COMMAND --help
    help man docs documentation
privplan doctor
    env version info_system check_install selftest config gpu gpus devices
privplan what-if, or privplan compare --jobs N and --on ADDRESS
    sweep grid grid_search hpo multirun
privplan what-if SPEC --frontier
    frontier pareto
privplan solve --from-book
    horizon
privplan proxy tune SPEC --dataset NAME, on public data: a choice by members' costs privacy
    tune optimize_hyperparameters search hyperopt optuna
privplan proxy pilot
    pilot
privplan proxy forecast
    forecast predict_accuracy utility
privplan account --tradeoff
    tradeoff roc f_dp risk
privplan attack
    mia membership_inference lira reconstruct invert gradient_inversion
privplan app SPEC, sliders on this machine; export PLAN --to flower writes a server's project
    serve server
privplan app
    ui gui web dashboard mlflow
privplan explain --epsilon 2; docs/glossary.md has the words
    glossary define terms meaning definition
privplan publish RUN -o BUNDLE
    save_model export_model deploy package release model upload push
privplan compare
    benchmark experiment bench
model.initial in the spec, with parameters that you trained on public data
    pretrain
the module in Python: simulate.train(...).model()(data.encode("new.csv"))
    predict infer inference score evaluate eval test
privplan compare --on CLUSTER
    submit slurm dask worker workers cluster ray jobs queue sbatch
one folder for all, compare -o FOLDER, which --on CLUSTER fills from many machines
    merge combine concat join gather collect
privplan attest keys new
    sign keygen key keys
pip install --upgrade privplan
    upgrade update
another book, --address FILE: what was released stays spent
    book.delete book.remove book.reset book.undo book.drop book.clear book.revert
privplan book show --format json, or privplan report BOOK
    book.export book.dump book.report book.csv book.print book.html
privplan book add, open or declare, which begin one
    book.init book.create book.new book.start
privplan book show
    book.list book.ls book.history book.runs book.spent book.status book.balance
privplan book left
    book.remaining book.rest book.available
privplan book add RUN
    book.record book.append book.log book.import book.register book.insert
privplan book declare NAME
    book.query book.count book.release book.statistic
privplan book open ACCOUNT --epsilon E
    book.budget book.limit book.set book.account book.group book.allocate
"""

# Ratio of ``difflib`` above which a name is surely meant, and may be.
SURE = 0.8
NEAR = 0.65
# Letters of a beginning that stands for a name, or for a word of a sentence.
_LEAST_BEGINNING = 3
_LEAST_STEM = 5


def folded(name: object) -> str:
    """A name without case, hyphens and underscores."""
    return re.sub(r"[-_\s]", "", str(name)).casefold()


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a table in pairs: one, and the indented one below it."""
    lines = text.strip().split("\n")
    for line, below in zip(lines[::2], lines[1::2], strict=True):
        yield line, below.strip()


@cache
def _equals() -> list[list[str]]:
    return [list(map(folded, line.split())) for line in _EQUAL.strip().split("\n")]


@cache
def _purposes() -> dict[str, str]:
    """What serves a purpose, by its folded words."""
    return _by_word((sentence, words) for words, sentence in _entries(_PURPOSES))


@cache
def _commands() -> dict[str, str]:
    """What to use, by the folded name of what is no command."""
    return _by_word(_entries(_COMMANDS))


def _by_word(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What is said, by each of the folded words that it is said of; the first wins."""
    by_word: dict[str, str] = {}
    for sentence, words in entries:
        for word in words.split():
            by_word.setdefault(folded(word), sentence)
    return by_word


def call_of(name: str, kind: str = "") -> str | None:
    """The call in Python that a name means, of a kind of value or else of all."""
    calls = {}
    for words, call in _entries(_CALLS):
        for word in words.split():
            owner, _, member = word.rpartition(".")
            if owner == kind:
                calls[member] = call
    meant = meaning(name, calls)
    return None if meant is None else calls[meant]


def meaning(name: object, names: Iterable[str]) -> str | None:
    """The one of some names that another tool's name means; None where none does.

    A line that begins with one of the names says it before a line that only has it.
    """
    by_folded = {folded(candidate): candidate for candidate in names}
    word = folded(name)
    if word in by_folded:
        return by_folded[word]
    lines = [line for line in _equals() if word in line]
    for line in sorted(lines, key=lambda line: line[0] not in by_folded):
        for equal in line:
            if equal in by_folded:
                return by_folded[equal]
    return None


def purpose(name: object, place: str = "") -> str | None:
    """What serves the purpose of a word that nothing is called; None of an unknown one.

    Args:
        name: the word.
        place: the command or kind of value that lacks it; it may have its own answer.
    """
    return purpose_there(name, place) or _purposes().get(folded(name))


def purpose_there(name: object, place: str) -> str | None:
    """The answer of one place alone; None where the place has no answer of its own."""
    return _purposes().get(f"{folded(place)}.{folded(name)}")


def command_meant(name: str) -> str | None:
    """What to use instead of a name that is no command; None of an unknown one."""
    return _commands().get(folded(name))


def nearest(text: object, names: Iterable[str], ratio: float = NEAR) -> str | None:
    """The name nearest to a text, or the first one that it begins; None without one."""
    # Not at the top: few commands end in a fault.
    from difflib import get_close_matches

    by_folded = {folded(name): name for name in names}
    word = folded(text)
    near = get_close_matches(word, by_folded, n=1, cutoff=ratio)
    # A name that was cut short is less near than its beginning is.
    if not near and len(word) >= _LEAST_BEGINNING:
        near = [name for name in by_folded if name.startswith(word)]
    return by_folded[near[0]] if near else None


# Words that say nothing of what a name means.
_SMALL_WORDS = {"from", "with", "for", "use", "the", "max", "min", "num", "all", "of"}


def said_in(name: object, sentence: str) -> bool:
    """Whether a sentence has all words of a name, or ones with the same beginnings."""
    words = re.split(r"[-_\s]", str(name).casefold())
    stems = [word for word in words if word not in _SMALL_WORDS]
    for word in stems:
        stem = word[: max(_LEAST_STEM, len(word) - _LEAST_BEGINNING)]
        ending = r"\w*" if len(word) >= _LEAST_STEM else ""
        if not re.search(rf"\b{re.escape(stem)}{ending}\b", sentence.casefold()):
            return False
    return bool("".join(stems))


# Digits with a fraction or an exponent, and what stands behind them.
_QUANTITY = re.compile(
    r"\s*([-+]?[\d.,_]*\d(?:e[-+]?\d+)?)\s*(%|k\b|/\s*\d+)?[\s\w]*", re.IGNORECASE
)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+")
_HUNDRED = 100
_THOUSAND = 1000
_UNLIMITED = {"inf", "infinity", "infinite", "∞", "none", "null", "unlimited", "no"}


def number_meant(text: object) -> str:
    """What to write for a text that is no number, as the end of a rule; else empty."""
    word = str(text).strip()
    if not isinstance(text, str) and not (isinstance(text, float) and isinf(text)):
        return ""
    if folded(word.lstrip("+.")) in _UNLIMITED:
        return "; a large number, such as 1000, stands for no limit"
    quantity = _QUANTITY.fullmatch(word)
    if quantity is None:
        return ""
    digits = quantity[1].replace("_", "")
    is_in_thousands = _THOUSANDS.fullmatch(digits) is not None
    digits = digits.replace(",", "" if is_in_thousands else ".")
    try:
        number = float(digits)
    except ValueError:
        return ""
    sign = (quantity[2] or "").casefold()
    if sign == "%":
        return f"; a share is a number such as {number / _HUNDRED:g}, a cohort how many"
    if sign == "k":
        digits = f"{number * _THOUSAND:g}"
    elif sign and float(sign[1:]):
        digits = f"{number / float(sign[1:]):.4g}"
    return f"; write {digits}" if digits != word else ""
