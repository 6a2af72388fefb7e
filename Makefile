# What people run. Each target installs what it needs first and says what that is.

.PHONY: demo test bench bench-coding lint build lab clean

# Casts a real file tree to eight agents on this machine by four protocols, and prints a table.
demo:
	@scripts/setup build
	cargo run --release --bin outpour -- demo

# Every test of the workspace. Tests that need root say so loudly when they are skipped.
test:
	@scripts/setup test
	cargo test --workspace

# Measures the figures of docs/benchmarks.md on this machine; takes about half an hour.
bench:
	@scripts/setup bench
	cargo build --release --workspace
	cargo run --release -p outpour-bench

# Measures coding against other crates and writes the table of docs/coding.md; a few minutes.
bench-coding:
	@mkdir -p target
	@scripts/setup build
	cargo bench -p outpour-coding --bench coding -- --json $(CURDIR)/target/bench-coding.json \
		--write $(CURDIR)/docs/coding.md

# Formatting, clippy, documentation and the structure of the tree.
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	scripts/tidy

# The self-contained binary: target/<host>/release/outpour
build:
	@scripts/setup build
	cargo build --release --bin outpour

# The experiments of docs/experiments: target/<host>/release/outpour-lab
lab:
	@scripts/setup build
	cargo build --release --bin outpour-lab

clean:
	cargo clean
