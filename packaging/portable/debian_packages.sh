# Sourced by the scripts of this folder: packages of a Debian suite, without touching this machine's own apt state.
#
# The archive is the one that this machine's apt uses, or $QUIRE_DEBIAN_MIRROR. apt verifies what it downloads with
# Debian's keys.

archive_url() {
  if [ -n "${QUIRE_DEBIAN_MIRROR:-}" ]; then
    echo "$QUIRE_DEBIAN_MIRROR"
  else
    apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
      awk '$2 == "Debian" && $3 == "Debian" {print $1; exit}'
  fi
}

# suite_apt SUITE FOLDER: prepares FOLDER for in_suite.
suite_apt() {
  local suite=$1 folder=$2 url
  url=$(archive_url)
  [ -n "$url" ] || { echo "no Debian archive found: set QUIRE_DEBIAN_MIRROR" >&2; return 1; }
  mkdir -p "$folder/etc/preferences.d" "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/etc/apt.conf.d"
  : >"$folder/state/status"
  local signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  printf 'deb %s %s %s main\ndeb-src %s %s %s main\n' "$signed" "$url" "$suite" "$signed" "$url" "$suite" \
    >"$folder/etc/sources.list"
  in_suite "$folder" apt-get update -qq
}

# in_suite FOLDER COMMAND...: an apt command that sees that suite alone.
in_suite() {
  local folder=$1 command=$2
  shift 2
  "$command" -o "Dir::Etc=$folder/etc" -o "Dir::State=$folder/state" -o "Dir::State::status=$folder/state/status" \
    -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root "$@"
}
