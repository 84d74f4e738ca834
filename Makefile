# Makefile for zklock
#
# The extension itself is built with PGXS:
#
#   make                 build
#   make install         install into the PostgreSQL that PG_CONFIG belongs to
#   make installcheck    the SQL contract, on a running server that has zklock (PGPORT=...)
#
# A build outside the source tree is "make -f DIRECTORY/Makefile".
#
# These need nothing but git, make and apt: they install what is missing, build
# into build/ and install nothing of zklock into the system.
#
#   make demo            show what it does, with real servers
#   make demo-shell      the same servers, with a psql prompt
#   make test            all tests            (JOBS=12 TESTS=test/t/locks SLOW=... MUTANT=...)
#                        and, without TESTS, the models and 20 seconds of the simulation
#   make nemesis         a run with random faults, and a checker of what the clients
#                        saw (DURATION=60 SEED=... FAULTS=... TARGETS=... MUTANT=...)
#   make simulate        the engine in a simulated world, each step checked (SEED=... STEPS=... SERVERS=...
#                        DURATION=... PATHS="/hive /ez" MUTANT=... SHRINK=1 ...): test/simulate/README
#   make mutants         that the tests find the bugs of test/faults/README.md, of which
#                        MUTANT=... switches one on
#   make test-assert     all tests, with the extension's assertions (JOBS=12 TESTS=test/t/...)
#   make model           the models of the arguments in doc/internals.md, and their wrong variants
#   make test-asan       tests with the extension under AddressSanitizer and
#                        UndefinedBehaviorSanitizer
#   make coverage        which lines and functions the tests reach, with a minute of random faults
#                        (DURATION=60 TESTS=...; with TESTS, without the latter)
#   make bench           measure against the alternatives; writes doc/benchmarks.md, and all
#                        figures into build/bench/ (ROUNDS=7 DURATION=0.5; ONLY=think,...
#                        PLACES=memory,disk,ensemble,delay, BASE=another build's stage, to compare with that alone,
#                        and QUICK=1, of a few minutes, write the latter only)
#   make lint            format, warnings of two compilers, cppcheck
#   make mass            how much there is to read: lines, files, functions, words
#   make way             how many functions in how many files an uncontended lock and unlock cross
#                        (LIST=1: which)
#   make fuzz            fuzz names and paths (FUZZ_SECONDS=30)
#   make fuzz-answers    a ZooKeeper server that answers garbage (FUZZ_SECONDS=30 SEED=...)
#   make format          reformat the sources
#
# For those who publish zklock, see CONTRIBUTING.md:
#
#   make matrix          demo, lint and all tests in clean systems, one for each release
#                        (CELLS="trixie"); some 20 minutes for each; and each of the
#                        targets above in one of its own (CELLS=targets TARGETS="lint deb")
#   make dist            the archive for PGXN, from a tag (TAG=v1.0.0)
#   make dist-test       ... made from what is committed, built, and checked
#   make deb             Debian packages, for each PostgreSQL whose headers are installed
#   make deb-test        ... installed, used and removed in a clean Debian
#   make image-root      the tree of an image of the extension, for CloudNativePG and others that
#                        have PostgreSQL 18 or later

MODULE_big = zklock
TOP := $(dir $(firstword $(MAKEFILE_LIST)))
OBJS = $(patsubst $(TOP)%.c,%.o,$(wildcard $(TOP)src/*.c $(TOP)src/*/*.c))
EXTENSION = zklock zklock_advisory
DATA = zklock--1.0.sql zklock_advisory--1.0.sql
SCRIPTS_built = $(RUN)
PGFILEDESC = "zklock - ZooKeeper locks as SQL functions"
EXTRA_CLEAN = build $(RUN).o
# In this order: setup makes what the others use.
REGRESS = setup lock xact shared upgrade array tree semaphore persistent reservation lost claim queue one_use election hold_time break_lock stats \
	errors privileges settings role_settings restricted views tokens fence guard advisory command

# In PostgreSQL's processes a name that is exported belongs to all libraries: only what the
# server looks up is. PostgreSQL 16 and later define PGDLLEXPORT like this themselves.
PG_CPPFLAGS = -I$(srcdir)/src -DPGDLLEXPORT='__attribute__((visibility("default")))'
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -fvisibility=hidden
SHLIB_LINK = -lzookeeper_mt -lpthread -ldl

# The command stands alone, with libpq, and has a manual page.
RUN = src/bin/zklock-run/zklock-run

# On a machine that has no PGXS yet, only the targets below work.
PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(wildcard $(PGXS)),)
include $(PGXS)
$(OBJS): $(wildcard $(TOP)src/*.h $(TOP)src/*/*.h)
ifneq ($(abspath $(srcdir)),$(CURDIR))
$(shell mkdir -p $(dir $(OBJS) $(RUN)))
endif
$(RUN).o: CPPFLAGS += -I$(libpq_srcdir) -DZKLOCK_VERSION='"$(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(srcdir)/zklock.control)"'
# PostgreSQL 19 and later leave the first two out of libpq_pgport.
$(RUN): $(RUN).o
	$(CC) $(CFLAGS) $< -o $@ $(LDFLAGS) $(LDFLAGS_EX) -L$(pkglibdir) -lpgcommon -lpgport $(libpq_pgport) -lm

install: install-manual
install-manual:
	$(MKDIR_P) '$(DESTDIR)$(mandir)/man1'
	$(INSTALL_DATA) $(srcdir)/$(RUN).1 '$(DESTDIR)$(mandir)/man1'
uninstall: uninstall-manual
uninstall-manual:
	rm -f '$(DESTDIR)$(mandir)/man1/$(notdir $(RUN)).1'
endif

BUILD = $(CURDIR)/build
SOURCES = $(wildcard src/*.c src/*.h src/*/*.c src/*/*.h src/bin/*/*.c test/unit/*.c test/unit/*.h test/simulate/*.[ch] test/fuzz/*.c test/coverage/*.c test/way/*.c test/preload/*.c test/bench/*.[ch])
# Most of a test is waiting: more of them than processors keep these busy.
JOBS ?= 12
TESTS ?=
SLOW ?=
FUZZ_SECONDS ?= 30
DURATION ?= $(if $(MUTANT),40,60)
ifeq ($(origin SECONDS),command line)
override DURATION := $(SECONDS)
endif
SEED ?=
FAULTS ?=
TARGETS ?=
MUTANT ?=
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1
ASAN_TESTS ?= test/t/sql/regress.pl \
	$(patsubst %,test/t/locks/%.pl,cancel lost_client release reservations upgrade_and_downgrade) \
	$(patsubst %,test/t/outages/%.pl,away exits garbled_answers lost_replies node_deleted)

# $(call build-in,DIRECTORY,OPTIONS[,COMMAND]): builds a copy in build/DIRECTORY/obj-RELEASE,
# changed by the command, and installs it below build/DIRECTORY/stage
OBJ = obj-$(VERSION)
build-in = mkdir -p $(BUILD)/$(1)/$(OBJ)/src && \
	cp -pu Makefile zklock*.control zklock*--*.sql $(BUILD)/$(1)/$(OBJ) && \
	find $(BUILD)/$(1)/$(OBJ)/src -name '*.[ch1]' -delete && \
	find src -name '*.[ch1]' -exec cp -p --parents -t $(BUILD)/$(1)/$(OBJ) {} + && \
	rm -rf $(BUILD)/$(1)/stage && \
	$(or $(3),true) && \
	$(MAKE) -s -C $(BUILD)/$(1)/$(OBJ) with_llvm=no $(2) all && \
	$(MAKE) -s -C $(BUILD)/$(1)/$(OBJ) with_llvm=no $(2) install \
		DESTDIR=$(BUILD)/$(1)/stage >/dev/null

# $(run) COMMAND: with the two builds, and the faults that are to be on in all servers (SLOW=reads is
# slow-reads). Then there is one build for all: that with faults.
ON = $(MUTANT)$(if $(SLOW),$(if $(MUTANT),$(comma))slow-$(SLOW))
comma = ,
run = ZKLOCK_STAGE=$(BUILD)/$(if $(ON),faults,release)/stage ZKLOCK_FAULT_STAGE=$(BUILD)/faults/stage ZKLOCK_FAULTS=$(ON) \
	ZKLOCK_TLS_CLIENT=$(BUILD)/tls ZKLOCK_IMAGE_ROOT=$(IMAGE)

demo demo-shell:
	@tools/install-deps build demo
	@$(MAKE) --no-print-directory stage
	@ZKLOCK_STAGE=$(BUILD)/release/stage test/demo/demo $(if $(filter demo-shell,$@),--shell)

stage:
	@echo "building zklock"
	@+$(call build-in,release,)

fault-stage:
	@echo "building zklock with faults"
	@+$(call build-in,faults,COPT=-DZKLOCK_FAULTS)

# ZooKeeper's client library with TLS, made once
tls-client:
	@tools/client-library $(BUILD)/tls

# In an image the library finds that of ZooKeeper beside it, wherever the image is.
IMAGE = $(BUILD)/image-root
image-root:
	@tools/install-deps build image
	@$(MAKE) --no-print-directory image-tree

image-tree: tls-client
	@echo "building zklock for an image"
	@$(call build-in,image,"LDFLAGS_SL=-Wl$(comma)-rpath$(comma)'\$$\$$ORIGIN'")
	@rm -rf $(IMAGE) && mkdir -p $(IMAGE)/bin $(IMAGE)/lib $(IMAGE)/share/extension
	@cp -p $(BUILD)/image/stage$(bindir)/zklock-run $(IMAGE)/bin
	@cp -p $(BUILD)/image/stage$(pkglibdir)/zklock.so $(BUILD)/tls/libzookeeper_mt.so.2 $(IMAGE)/lib
	@cp -p $(BUILD)/image/stage$(datadir)/extension/zklock* $(IMAGE)/share/extension

# Older releases look for extensions in one place only.
test-image-tree: tls-client
	@case "$(VERSION)" in 15.*|16.*|17.*) ;; *) $(MAKE) --no-print-directory image-tree ;; esac

test:
	@tools/install-deps build demo test model
	@$(MAKE) --no-print-directory -j $$(nproc) -O $(if $(ON),,stage) fault-stage test-image-tree unit-test $(if $(TESTS)$(ON),,model-quick simulate)
	@$(run) JOBS=$(JOBS) test/perl/run-tap $(TESTS)

unit-test:
	@$(MAKE) -s -C test/unit check OUT=$(BUILD)/unit PG_CONFIG=$(PG_CONFIG)

model-quick:
	@prove test/model/check :: $(BUILD)/model quick

model:
	@tools/install-deps model
	@prove -v test/model/check :: $(BUILD)/model

# The simulation has no need for PGXS, which would build the extension.
ifneq ($(origin DURATION),override)
simulate: DURATION = $(if $(SEED),,20)
endif
simulate:
	@tools/install-deps build
	@case "$(VERSION)" in 15.*|16.*) ;; *) \
		echo "not simulating: what stands in for PostgreSQL is that of 15 and 16"; exit 0 ;; esac; \
	$(MAKE) -s -C test/simulate OUT=$(BUILD)/simulate PG_CONFIG=$(PG_CONFIG) && \
	BUILD=$(BUILD)/simulate PG_CONFIG=$(PG_CONFIG) SEED=$(SEED) STEPS=$(STEPS) SERVERS=$(SERVERS) DURATION=$(DURATION) \
		SESSIONS=$(SESSIONS) CLIENTS=$(CLIENTS) PATHS="$(PATHS)" WITHOUT="$(WITHOUT)" MUTANT=$(MUTANT) SHRINK=$(SHRINK) \
		test/simulate/run

some-seed = $(or $(SEED),$$(shuf -n 1 -i 1-1000000))
nemesis:
	@tools/install-deps build demo test
	@$(MAKE) --no-print-directory $(if $(ON),,stage) fault-stage
	@$(run) NEMESIS_SECONDS=$(DURATION) NEMESIS_SEED=$(some-seed) NEMESIS_TARGETS="$(TARGETS)" NEMESIS_CONF="$(CONF)" \
		NEMESIS_FAULTS="$(or $(FAULTS),$(if $(MUTANT),$$(test/faults/fault-table nemesis $(MUTANT))))" \
		test/perl/run-tap test/t/faults/nemesis.pl

mutants:
	@tools/install-deps build demo test
	@test/faults/fault-table find

# What is measured in part is no document.
BENCH = $(BUILD)/bench
ONLY ?=
PLACES ?= $(if $(QUICK),memory)
bench:
	@tools/install-deps build demo test bench
	@$(MAKE) --no-print-directory stage
	@mkdir -p $(BENCH) && rm -f $(BENCH)/rounds.json
	@status=0; ZKLOCK_STAGE=$(BUILD)/release/stage ZKLOCK_RESULTS=$(BENCH) \
		BENCH_COMMIT=$$(git describe --always --dirty 2>/dev/null) BENCH_ONLY=$(ONLY) BENCH_PLACES=$(PLACES) BENCH_BASE=$(BASE) \
		BENCH_ROUNDS=$(or $(ROUNDS),$(if $(QUICK),3,7)) \
		BENCH_WARM_UP=$(if $(QUICK),2,10) \
		BENCH_SECONDS=$(if $(filter file,$(origin DURATION)),$(if $(QUICK),0.2,0.5),$(DURATION)) \
		test/perl/run-tap test/bench/bench.pl || status=$$?; \
	test/bench/report $(BENCH)/rounds.json $(if $(ONLY)$(PLACES)$(QUICK)$(BASE),,doc) && exit $$status

# An extension may have assertions in a server that was built without them.
ASSERT = $(BUILD)/assert
test-assert:
	@tools/install-deps build demo test
	@$(MAKE) -s tls-client
	@echo "building zklock with assertions"
	@$(call build-in,assert/release,COPT=-DUSE_ASSERT_CHECKING)
	@$(call build-in,assert/faults,COPT="-DUSE_ASSERT_CHECKING -DZKLOCK_FAULTS")
	@$(run) ZKLOCK_STAGE=$(ASSERT)/release/stage ZKLOCK_FAULT_STAGE=$(ASSERT)/faults/stage \
		JOBS=$(JOBS) test/perl/run-tap $(TESTS)

test-asan:
	@tools/install-deps build demo test
	@echo "building zklock with sanitizers"
	@$(call build-in,asan,COPT="$(SANITIZE)")
	@$(MAKE) -s -C test/unit check OUT=$(BUILD)/unit-asan CFLAGS="-g $(SANITIZE)"
	@gcc -shared -fPIC -Wl,-z,initfirst -o $(BUILD)/asan/stage/early.so test/preload/asan_early.c
	@ZKLOCK_STAGE=$(BUILD)/asan/stage \
		ZKLOCK_PRELOAD="$$(gcc -print-file-name=libasan.so) STAGE/early.so" \
		ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
		JOBS=$(JOBS) test/perl/run-tap $(ASAN_TESTS)

# Optimised code would be counted where its author does not look for it.
COVERAGE = $(BUILD)/coverage
COUNTED = --coverage -fprofile-update=atomic -O0 -U_FORTIFY_SOURCE
build-counted = $(call build-in,coverage/$(1),COPT="$(COUNTED) $(2)" LDFLAGS_SL=$(COVERAGE)/flush.o)
# $(call run-counted,RUN,COMMAND): a failing test does not keep the others' counts back.
run-counted = $(run) ZKLOCK_STAGE=$(COVERAGE)/release/stage ZKLOCK_FAULT_STAGE=$(COVERAGE)/faults/stage \
	ZKLOCK_PRELOAD=STAGE/flush.so ZKLOCK_COVERAGE=1 ZKLOCK_RESULTS=$(COVERAGE)/counts/$(1) JOBS=$(JOBS) \
	NEMESIS_SECONDS=$(DURATION) NEMESIS_SEED=$(some-seed) $(2) || status=$$?
coverage:
	@tools/install-deps build demo test
	@$(MAKE) -s tls-client
	@echo "building zklock with gcov"
	@rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	@gcc -Wall -O1 -fPIC -DLIBRARY -c -o $(COVERAGE)/flush.o test/coverage/flush.c
	@$(call build-counted,release)
	@$(call build-counted,faults,-DZKLOCK_FAULTS)
	@gcc -Wall -O1 -fPIC -shared -o $(COVERAGE)/release/stage/flush.so test/coverage/flush.c
	@$(MAKE) -s -C test/unit check OUT=$(COVERAGE)/unit CFLAGS="-g $(COUNTED)"
	@status=0; $(call run-counted,tap,test/perl/run-tap $(TESTS)); \
	$(if $(TESTS),,$(call run-counted,nemesis,test/perl/run-tap test/t/faults/nemesis.pl);) \
	test/coverage/report $(COVERAGE) && exit $$status

lint:
	@tools/install-deps build lint
	@$(MAKE) --no-print-directory format-check whitespace-check warnings storeys names-check steps-check fault-check clock-check release-check cppcheck

# Each version of clang-format formats a little differently: the one of Debian 12 counts.
format-check:
	@if clang-format --version | grep -q 'version 14\.'; then \
		echo "checking the format" && clang-format --dry-run --Werror $(SOURCES); \
	else \
		echo "not checking the format: this is not clang-format 14"; \
	fi
	@tools/typedefs | diff tools/typedefs.list - || { echo "tools/typedefs.list is out of date: make format" >&2; exit 1; }

# As .gitattributes has it; an archive has no git.
whitespace-check:
	@! git rev-parse --git-dir >/dev/null 2>&1 || \
		{ echo "checking the white space" && git diff --check $$(git hash-object -t tree /dev/null); }

warnings:
	@echo "building with gcc -Werror"
	@$(call build-in,gcc,CC=gcc COPT=-Werror)
	@echo "building with faults and gcc -Werror"
	@$(call build-in,gcc-faults,CC=gcc COPT="-Werror -DZKLOCK_FAULTS")
	@echo "building with clang -Werror"
	@$(call build-in,clang,CC=clang \
		COPT="-Werror -Wno-ignored-optimization-argument -Wno-unknown-warning-option -Wno-ignored-attributes")

# Each folder below src/ is a storey, and nothing depends on what is above it.
storeys: stage
	@echo "checking the storeys"
	@test/lint/storeys $(BUILD)/release/$(OBJ)

# A breakpoint has one place.
names-check:
	@echo "checking that each function has its own name"
	@test/lint/names

steps-check:
	@echo "checking the drawings of state machines"
	@test/lint/steps

fault-check:
	@echo "checking the table of faults"
	@test/faults/fault-table check

# Max() evaluates what it returns twice, and the clock goes on in between.
clock-check:
	@echo "checking that no Max() looks at the clock"
	@! grep -nE '\bMax\([^;]*(zklock_now|zklock_ms_|GetCurrentTimestamp)' -r src --include='*.[ch]'

# PostgreSQL 18 has another name for that attribute.
release-check:
	@echo "checking that PostgreSQL's releases differ in src/compat.h alone"
	@! grep -nE 'PG_VERSION_NUM|pg_attribute_noreturn' -r src --include='*.[ch]' | grep -v '^src/compat\.h:'

mass:
	@tools/install-deps build
	@$(MAKE) --no-print-directory count-mass

count-mass: stage
	@tools/mass $(BUILD)/release/$(OBJ)

# Functions that were inlined would not be counted.
WAY = $(BUILD)/way
LIST ?=
way:
	@tools/install-deps build demo test
	@echo "building zklock with a recorder"
	@$(call build-in,way,COPT="-O0 -U_FORTIFY_SOURCE -finstrument-functions",cp -p test/way/recorder.c $(WAY)/$(OBJ)/src)
	@rm -f $(WAY)/summary $(WAY)/list
	@ZKLOCK_STAGE=$(WAY)/stage ZKLOCK_RESULTS=$(WAY) test/perl/run-tap test/way/way.pl
	@cat $(if $(LIST),$(WAY)/list) $(WAY)/summary

cppcheck:
	@echo "running cppcheck"
	@cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 \
		--enable=warning,performance,portability --suppress=missingInclude \
		'--suppress=nullPointerOutOfMemory:test/unit/*' --suppress=normalCheckLevelMaxBranches \
		--include=test/lint/cppcheck.h \
		-Isrc -DPG_VERSION_NUM=150018 src test/unit test/fuzz

TAG ?=
dist:
	@tools/install-deps dist
	@tools/make-dist $(BUILD)/dist $(TAG)

dist-test:
	@tools/install-deps build demo test dist
	@tools/check-dist $(BUILD)/dist-test

CELLS ?=
matrix:
	@tools/install-deps deb-test
	@TESTS="$(TESTS)" TARGETS="$(TARGETS)" tools/matrix $(CELLS)

deb:
	@tools/install-deps build deb
	@debian/tools/build-packages $(BUILD)/deb

deb-test: deb
	@tools/install-deps deb-test
	@debian/tools/check-packages $(BUILD)/deb $$(. /etc/os-release && echo $$VERSION_CODENAME)

fuzz:
	@tools/install-deps lint
	@$(MAKE) -s -C test/fuzz fuzz OUT=$(BUILD)/fuzz FUZZ_SECONDS=$(FUZZ_SECONDS)

fuzz-answers:
	@tools/install-deps build demo test
	@$(MAKE) --no-print-directory stage
	@ZKLOCK_STAGE=$(BUILD)/release/stage ZKLOCK_FUZZ_SECONDS=$(FUZZ_SECONDS) \
		ZKLOCK_FUZZ_SEED=$(SEED) test/perl/run-tap test/t/outages/garbled_answers.pl

format:
	@tools/install-deps lint
	clang-format -i $(SOURCES)
	tools/typedefs >tools/typedefs.list

.DEFAULT_GOAL := all
.PHONY: demo demo-shell stage fault-stage tls-client test unit-test model-quick model simulate nemesis mutants bench test-assert \
	test-asan coverage lint format-check whitespace-check warnings storeys names-check steps-check fault-check clock-check release-check cppcheck mass count-mass way matrix dist dist-test \
	deb deb-test fuzz fuzz-answers format install-manual uninstall-manual
