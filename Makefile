# The commands that developers and CI run. `make help` lists them.

# rustup's programs, which may not be in the login shell's PATH yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

# Arguments for the program: make demo ARGS="--clients 16"
ARGS ?=

# Programs that run in real time get real-time priority, if the system allows it.
REALTIME = $$(chrt -f 20 true 2>/dev/null && echo chrt -f 20)
IOFAIR = "$${CARGO_TARGET_DIR:-target}/release/iofair"
LAB = "$${CARGO_TARGET_DIR:-target}/release/iofair-lab"

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz search sanitize soak hostile lint docs book bench keys measured drives stacks ablation evidence reproduce ranges robust live truth drawn python kubernetes package deb clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: ## NBD clients on an emulated SSD under four policy stacks; takes a minute
	@scripts/setup demo
	cargo build --release --locked -p iofair
	$(REALTIME) $(IOFAIR) demo $(ARGS)

test: ## every test that this machine can run
	@scripts/setup test
	@scripts/test

# Seeds a stack: make fuzz SEEDS=100000
SEEDS ?= 5000

fuzz: ## the conformance suite over more seeds than in `make test`, then the targets of fuzz/ (nightly)
	@scripts/setup demo
	IOFAIR_SEEDS=$(SEEDS) cargo test --release --locked -p iofair-policies -p iofair-baselines --test conformance
	@scripts/fuzz

# The number of cases, and the directory for experiment files of findings: make search CASES=500 KEEP=/tmp
CASES ?= 10000
KEEP ?= target

search: ## search random drives and workloads for what the scheduler promise breaks; writes reproduction/evidence/search.csv (1 hour)
	@scripts/setup demo
	IOFAIR_CASES=$(CASES) IOFAIR_KEEP="$$(realpath $(KEEP))" IOFAIR_FOUND="$(CURDIR)/reproduction/evidence/search.csv" \
		cargo test --release --locked -p iofair-reproduction --test search random -- --nocapture
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages

# A single tool: make sanitize ONLY=miri
ONLY ?=

sanitize: ## the server's tests under Miri, AddressSanitizer and ThreadSanitizer (nightly; up to half an hour each)
	@scripts/setup demo
	@scripts/sanitize $(ONLY)

# Kills for each back end, and power cuts for all front ends and pools: make soak KILLS=1000 CUTS=100000
KILLS ?= 300
CUTS ?= 10000
# Mounting needs root; block devices are created in a virtual machine.
MOUNTS = $$(test "$$(id -u)" = 0 && echo --include-ignored --skip needs_ublk; \
	test -e target/guest/initramfs || echo --skip needs_guest)

soak: ## kill servers and cut their power under verified load, thousands of times
	@scripts/setup demo
	IOFAIR_CUTS=$(CUTS) cargo test --locked -p iofair-serve --test power keep -- --nocapture $(MOUNTS)
	IOFAIR_CUTS=$(CUTS) cargo test --locked -p iofair-serve --lib cuts -- --nocapture
	IOFAIR_KILLS=$(KILLS) cargo test --release --locked -p iofair --test commands crash:: -- --nocapture
	IOFAIR_KILLS=$(KILLS) cargo test --release --locked -p iofair-serve --test vhost killed

hostile: ## hostile clients beside one with a contract; writes reproduction/isolation.md (12 minutes, on a quiet machine)
	@scripts/setup demo
	cargo build --release --locked -p iofair
	IOFAIR_PROGRAM="$$(realpath $(IOFAIR))" IOFAIR_HOSTILE_PAGE="$(CURDIR)/reproduction/isolation.md" \
		cargo test --locked -p iofair-serve --test hostile needs_time -- --ignored --nocapture

lint: ## format, clippy, documentation, licences
	@scripts/setup lint
	@scripts/lint

docs: ## regenerate the generated pages
	@scripts/setup demo
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages
	IOFAIR_BLESS=1 cargo test --locked -p iofair --test commands -- control::the_page plan::the_page
	IOFAIR_BLESS=1 cargo test --locked -p iofair-drive --test calibration

book: ## all pages as a site, in target/book
	@scripts/setup book
	@scripts/book

bench: ## benchmarks beside other software; writes docs/performance.md and lab/docs/performance.md, and costs into the pages of policies
	@scripts/setup bench
	IOFAIR_BENCH_PAGE="$(CURDIR)/docs/performance.md" cargo bench --locked -p iofair-serve --bench '*'
	IOFAIR_BENCH_PAGE="$(CURDIR)/lab/docs/performance.md" cargo bench --locked --workspace --exclude iofair-serve --bench '*'
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages
	IOFAIR_BLESS=1 cargo test --locked -p iofair --test commands control::the_page

keys: ## what follows from the table of contract keys: the OpenAPI document, Helm chart, C header, public items
	IOFAIR_BLESS=1 cargo test --locked -p iofair-serve --lib openapi
	IOFAIR_BLESS=1 cargo test --locked -p iofair-csi --bins helm_chart
	IOFAIR_BLESS=1 cargo test --locked -p iofair-capi --test header
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy interface

measured: ## measure the numbers that pages name; writes reproduction/measured.csv, the pages of policies and reproduction/promise.md
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	$(LAB) run --measured reproduction/measured.csv
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages

drives: ## fit the library of drives to public measurements; writes profiles/drives/library.csv and lab/docs/library.md (half an hour)
	@scripts/setup demo
	IOFAIR_BLESS=1 nice -n 19 cargo test --release --locked -p iofair-reproduction --test library -- --ignored
	$(MAKE) stacks

stacks: ## four policy stacks on every drive of the library, fresh and overwritten; writes reproduction/stacks.md (5 minutes)
	@scripts/setup demo
	IOFAIR_BLESS=1 nice -n 19 cargo test --release --locked -p iofair-reproduction --test stacks needs_time -- --ignored
	IOFAIR_BLESS=1 cargo test --release --locked -p iofair-reproduction --test stacks the_page

# Cases on flash drives, volumes and disks: make ablation CASES="200 100 200 100"
ablation: ## what gets worse without each rule of promise; writes reproduction/ablation.md (half an hour)
	@scripts/setup demo
	@nice -n 19 scripts/ablation
	IOFAIR_BLESS=1 cargo test --locked -p iofair-reproduction --test ablation the_page

evidence: ## promise beside every stack, with many seeds, and step responses; writes reproduction/evidence and its tables in reproduction/promise.md
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	$(LAB) run --quiet reproduction/experiments/steps --stack promise --series reproduction/evidence/steps.csv
	$(LAB) run --quiet reproduction/experiments/promise --stack every --frontier reproduction/evidence/frontier.csv
	$(LAB) run --quiet reproduction/experiments/promise --stack promise --drive-variants --repeats 20 \
		--frontier reproduction/evidence/seeds.csv
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages

reproduce: ## the published experiments in simulation; writes the pages in reproduction/, charts as reproduction.html, and all of `measured`
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	$(LAB) run reproduction/experiments --markdown reproduction/reproduction.md --pages reproduction/pages --html reproduction.html \
		--measured reproduction/measured.csv \
		$$(test -e reproduction/evidence/robust.csv && echo --robust reproduction/evidence/robust.csv) $(ARGS)
	IOFAIR_BLESS=1 cargo test --locked -p iofair-lab --test tidy generated_pages
	@echo "wrote reproduction/reproduction.md, reproduction/measured.csv and, with charts, $(CURDIR)/reproduction.html"

ranges: ## what measured rows leave open of the numbers of drives and machines; writes profiles/machines/ranges.csv (10 minutes)
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	nice -n 19 $(LAB) fit --out profiles/machines/ranges.csv $(ARGS)

# The number of draws, and what is drawn: make robust DRAWS=20 SOURCES=reproduction/experiments/article-2018
DRAWS ?= 200
SOURCES ?= $(addprefix reproduction/experiments/,article-2018 survey-2019 comparison-2019 controller-2015 \
	io-controller-2009 mails-2019)

robust: ## how often each published claim holds over seeds and open numbers; writes reproduction/evidence/robust.csv (1 to 2 hours; resumes)
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	nice -n 19 $(LAB) run $(SOURCES) --draws $(DRAWS) --robust reproduction/evidence/robust.csv $(ARGS)

# The experiments of reproduction/live.md: 68 runs of 8 s (14 minutes). With LIVE_TIMES=, runs take the time that their files give.
LIVE_TIMES ?= --time 4s --ramp 2s --set history=2s
LIVE = article-2018/figure-1 article-2018/figure-3 comparison-2019/plextor comparison-2019/samsung-970-pro \
	comparison-2019/hitachi

live: ## experiments in real time through real sockets, beside the simulator; writes reproduction/live.md
	@scripts/setup demo
	cargo build --release --locked -p iofair-lab
	nice -n -20 $(LAB) run --on serve \
		$(LIVE:%=reproduction/experiments/%.toml) --repeats 1 $(LIVE_TIMES) --markdown reproduction/live.md $(ARGS)

PASSES ?= 1
truth: ## reproduction/experiments/truth on the kernel, live and simulated; as root; writes reproduction/truth.md (45 minutes; 35 more a pass, PASSES=1)
drawn: ## the same with mixes that were drawn at random; as root; writes reproduction/drawn.md (40 minutes)
truth drawn:
	@scripts/setup test
	cargo build --release --locked -p iofair-lab
	$(LAB) run --on linux reproduction/experiments/$@ --quiet --evidence reproduction/evidence/$@.json
	for pass in $$(seq 2 $(PASSES)); do \
		$(LAB) run --on linux reproduction/experiments/$@ --quiet --evidence reproduction/evidence/$@.json --add || exit; done
	$(LAB) run --on serve reproduction/experiments/$@ --quiet --repeats 1 --evidence reproduction/evidence/$@.json
	$(LAB) run reproduction/experiments/$@ --quiet --repeats 9 --truth reproduction/evidence/$@.json --markdown reproduction/$@.md

kubernetes: ## the Helm chart on a real control plane; builds it with Go the first time (20 minutes, then 5; as root)
	@scripts/setup test
	@scripts/kubernetes
	cargo build --locked -p iofair
	cargo test --locked -p iofair-csi --test kubernetes -- --include-ignored --nocapture
	ulimit -n 4096; IOFAIR_NODES=1000 IOFAIR_VOLUMES=20000 cargo test --locked -p iofair-csi --test scale -- --nocapture

python: ## the Python package as a wheel, in target/wheels, with its tests, examples and notebooks (5 minutes)
	@scripts/setup python
	@scripts/python

package: ## every crate as a package for a registry, in target/package, each built from its package alone
	@scripts/setup demo
	@scripts/package

deb: ## Debian packages of the program and of libiofair, in target/deb
	@scripts/setup deb
	CARGO_PROFILE_RELEASE_LTO=thin CARGO_PROFILE_RELEASE_DEBUG=1 CARGO_PROFILE_RELEASE_STRIP=none \
		cargo build --release --locked -p iofair -p iofair-capi
	@scripts/deb $(IOFAIR) target/deb
	@scripts/deb-library "$${CARGO_TARGET_DIR:-target}/release/libiofair.a" target/deb

clean: ## remove build results
	cargo clean
