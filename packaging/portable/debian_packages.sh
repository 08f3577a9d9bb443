# Sourced by the scripts of this folder: packages of a Debian suite, without touching this machine's own apt
# state.
#
# The archive is the one that this machine's apt uses, or $QUIRE_DEBIAN_MIRROR. apt verifies what it downloads
# with Debian's keys.

archive_url() {
  if [ -n "${QUIRE_DEBIAN_MIRROR:-}" ]; then
    echo "$QUIRE_DEBIAN_MIRROR"
  else
    apt-get indextargets --format '$(SITE) $(ORIGIN) $(LABEL)' 'Created-By: Packages' |
      awk '$2 == "Debian" && $3 == "Debian" {print $1; exit}'
  fi
}

# suite_apt SUITE FOLDER [ARCHITECTURE]: prepares FOLDER for in_suite; packages of this machine's architecture
# or of another.
suite_apt() {
  local suite=$1 folder=$2 architecture=${3:-$(dpkg --print-architecture)} url
  url=$(archive_url)
  [ -n "$url" ] || { echo "no Debian archive found: set QUIRE_DEBIAN_MIRROR" >&2; return 1; }
  mkdir -p "$folder/etc/preferences.d" "$folder/state/lists/partial" "$folder/cache/archives/partial" "$folder/etc/apt.conf.d"
  : >"$folder/state/status"
  echo "$architecture" >"$folder/architecture"
  local signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  printf 'deb %s %s %s main\ndeb-src %s %s %s main\n' "$signed" "$url" "$suite" "$signed" "$url" "$suite" \
    >"$folder/etc/sources.list"
  in_suite "$folder" apt-get update -qq
}

# in_suite FOLDER COMMAND...: an apt command that sees that suite and architecture alone.
in_suite() {
  local folder=$1 command=$2 architecture
  architecture=$(cat "$folder/architecture")
  shift 2
  "$command" -o "Dir::Etc=$folder/etc" -o "Dir::State=$folder/state" -o "Dir::State::status=$folder/state/status" \
    -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root \
    -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" "$@"
}

# debian_architecture MACHINE: Debian's name for what uname -m prints.
debian_architecture() {
  case $1 in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    *) echo "no packages are made for $1" >&2; return 1 ;;
  esac
}

# relative_links FOLDER: absolute links would lead out of the folder.
relative_links() {
  local folder=$1 link
  find "$folder" -type l -lname '/*' | while read -r link; do
    ln -sfrn "$folder$(readlink "$link")" "$link"
  done
}
