# What people run. Each target installs what it needs first and says what that is.

.PHONY: demo test test-crash bench bench-coding lint audit fuzz build reproducible lab clean

# Casts a real file tree to eight agents on this machine by four protocols, and prints a table.
demo:
	@scripts/setup build
	cargo run --locked --release --bin outpour -- demo

# Every test of the workspace. Tests that need root say so loudly when they are skipped.
test:
	@scripts/setup test
	@scripts/test

# Kills, power cuts and failing system calls on real casts, 2,000 in about an hour, as root; CRASH takes
# other numbers, as in: make test-crash CRASH="--cuts 20 --kills 0 --injections 0". Results: docs/testing.md.
test-crash:
	@scripts/setup crash
	@mkdir -p target
	nice -n 5 cargo test --locked -p outpour-cli --test crash -- --json $(CURDIR)/target/crash.json $(CRASH)

# Measures the figures of docs/benchmarks.md on this machine; takes about half an hour.
bench:
	@scripts/setup bench
	cargo build --locked --release --workspace
	cargo run --locked --release -p outpour-bench

# Measures coding against other crates and writes the table of docs/coding.md; a few minutes.
bench-coding:
	@mkdir -p target
	@scripts/setup build
	cargo bench --locked -p outpour-coding --bench coding -- --json $(CURDIR)/target/bench-coding.json \
		--write $(CURDIR)/docs/coding.md

# Formatting, clippy, documentation and the structure of the tree.
lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	scripts/tidy

# Licences, sources and versions of all crates, and known vulnerabilities.
audit:
	scripts/audit

# Every fuzzer for a minute; scripts/fuzz takes names and other times. Its table is part of docs/testing.md.
fuzz:
	scripts/fuzz --seconds 60

# The self-contained binary: target/<host>/release/outpour
build:
	@scripts/setup build
	scripts/release

# Builds that binary twice, in two places, and compares the bytes; some fifteen minutes.
reproducible:
	@scripts/setup build
	scripts/reproducible

# The experiments of docs/experiments: target/<host>/release/outpour-lab
lab:
	@scripts/setup build
	cargo build --locked --release --bin outpour-lab

clean:
	cargo clean
