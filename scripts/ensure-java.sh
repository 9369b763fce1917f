#!/usr/bin/env bash
# Makes sure that Java 17 or newer is there: Kafka and Spark need it.
set -euo pipefail

new_enough() {
    local version
    version=$("$1" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1) || return 1
    [ "${version:-0}" -ge 17 ]
}

has_java() {
    { [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] && new_enough "$JAVA_HOME/bin/java"; } ||
        { command -v java >/dev/null && new_enough java; }
}

give_up() {
    echo "Java 17 or newer is needed: $1 (Debian: apt-get install openjdk-17-jre-headless; else set JAVA_HOME)" >&2
    exit 1
}

has_java && exit 0
command -v apt-get >/dev/null || give_up "please install it"
if [ "$(id -u)" = 0 ]; then as_root=(); elif sudo -n true 2>/dev/null; then as_root=(sudo -n); else
    give_up "please install it"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y "$1" >>"$log" 2>&1; }
echo "installing Java …"
"${as_root[@]}" apt-get update -qq >>"$log" 2>&1 || true
install openjdk-17-jre-headless || install default-jre-headless || { tail -n 20 "$log" >&2; give_up "apt-get failed"; }
has_java || give_up "what apt-get installed is older"
