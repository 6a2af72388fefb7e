# Runs in `sh` on a destination, after a line that sets nonce, version, digest, size and system.
# Finds the cached program or takes a copy of it from standard input, and becomes its agent.
# Everything said to the other end is a line that begins with the nonce; what login files of the
# host print before is not.

# What is cached is the user's alone; what the agent makes for others is up to the user's own mask.
mask=$(umask)
umask 077
here="$(uname -s) $(uname -m)"

say() {
    word=$1
    shift
    printf '\noutpour-%s %s %s %s\n' "$nonce" "$word" "$here" "$*"
}

fail() {
    say FAIL "$*"
    exit 1
}

sum() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256
    elif command -v openssl >/dev/null 2>&1; then
        openssl dgst -sha256 -r
    fi <"$1" 2>/dev/null | cut -c 1-64
}

[ "$here" = "$system" ] || fail "another system"

# The digest of nothing: whatever computes sums here works.
[ "$(sum /dev/null)" = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 ] ||
    fail "needs sha256sum, shasum or openssl to check its copy of outpour, and has none"

cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/outpour
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] ||
    fail "cannot write $cache; set XDG_CACHE_HOME there to a directory that can be written"

# Whoever may write there decides what runs here: only the user, and in the directory above it only those
# that cannot replace what is the user's. Access lists show as group rights.
guarded() {
    owners=$1
    shift
    # shellcheck disable=SC2086,SC2012 # Numbers, and no names, are what is looked at.
    set -- $(ls -ldn "$1/." 2>/dev/null)
    case " $owners " in *" ${3:-none} "*) ;; *) return 1 ;; esac
    case $1 in
        ?????????[tT]*) [ "$owners" != "$(id -u)" ] ;;
        ?????w* | ????????w*) return 1 ;;
    esac
}
guarded "$(id -u)" "$cache" && guarded "$(id -u) 0" "$cache/.." ||
    fail "others can write $cache or replace it; chmod go-w it and what it is in, or set XDG_CACHE_HOME there to a directory of your own"

program=$cache/outpour-$version-$(printf %s "$digest" | cut -c 1-16)
if [ -f "$program" ] && [ "$(sum "$program")" = "$digest" ]; then
    # The time of the last use decides what is old.
    chmod 700 "$program" && touch "$program"
    word=HAVE
else
    new=$(mktemp "$cache/.new-XXXXXX") || fail "cannot create a file in $cache"
    trap 'rm -f "$new"' EXIT
    trap 'exit 1' HUP INT TERM
    say NEED
    head -c "$size" >"$new" || fail "cannot write $cache; is its disk full?"
    [ "$(sum "$new")" = "$digest" ] || fail "the copy of outpour arrived damaged in $cache"
    chmod 700 "$new" && mv -f "$new" "$program" || fail "cannot rename a file in $cache"
    trap - EXIT HUP INT TERM
    find "$cache" -type f '(' -name 'outpour-*' -mtime +30 -o -name '.new-*' -mtime +1 ')' \
        -exec rm -f '{}' + 2>/dev/null
    word=READY
fi

"$program" agent --version </dev/null >/dev/null 2>&1 ||
    fail "cannot run $program; set XDG_CACHE_HOME there to a directory that is not mounted noexec"

say "$word" "${SSH_CONNECTION:-}"
umask "$mask"
exec "$program" agent --stdio
