#!/bin/sh
# Does this machine compute the same bits? Builds the short trainings and the special values (or those named) with $CXX
# and $FLAGS, runs each (by $RUN, where it is built for another machine) and compares hashes. Needs only a C++17 compiler.
set -eu
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: "${CXX:=c++}" "${RUN:=}"
: "${FLAGS:=-std=c++17 -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-exceptions -pthread}"
wrong=0
[ $# -gt 0 ] || set -- probe cartpole pendulum
for run; do
    $CXX $FLAGS -w -I"$here/../../kernels" -o "$scratch/$run" "$here/$run.cpp" -lm
    $RUN "$scratch/$run" || wrong=1
done
exit $wrong
