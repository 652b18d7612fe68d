#!/bin/sh
# What both container recipes do inside: a compiler for the kernel, the pinned requirements, the package.
set -eu
cd "$(dirname "$0")/../.."
apt-get update -qq
apt-get install -qq -y --no-install-recommends gcc libc6-dev make git
python -m pip install --no-cache-dir -r envs/requirements.txt setuptools
python -m pip install --no-cache-dir --no-build-isolation --no-deps .
rm -rf /var/lib/apt/lists/*
