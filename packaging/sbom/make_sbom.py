#!/usr/bin/env python3
"""make_sbom.py: an SPDX 2.3 document (JSON) of the portable tarball on standard output, and the license texts of what is
linked into it in the folder --licenses.

Versions are those of the Debian packages that the programs were built from, on this machine or in --sysroot
(packaging/arm64/sysroot.sh), and of the source packages in --libraries (static_libraries.sh). Nothing in it depends on the
time or on the folder of the build."""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import uuid

# Debian package that has the archive or the headers: SPDX license expression.
PACKAGES = {
    "libboost1.81-dev": "BSL-1.0",
    "libbsd-dev": "BSD-3-Clause AND BSD-2-Clause AND ISC AND MIT",
    "libcli11-dev": "BSD-3-Clause",
    "libedit-dev": "BSD-3-Clause",
    "libjpeg62-turbo-dev": "IJG AND BSD-3-Clause AND Zlib",
    "libmd-dev": "BSD-3-Clause AND BSD-2-Clause AND ISC",
    "libncurses-dev": "X11",
    "libpcre2-dev": "BSD-3-Clause",
    "libpng-dev": "libpng-2.0",
    "libseccomp-dev": "LGPL-2.1-only",
    "libssl-dev": "Apache-2.0",
    "libstdc++-12-dev": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libutf8proc-dev": "MIT AND Unicode-DFS-2016",
    "libwebp-dev": "BSD-3-Clause",
    "libzstd-dev": "BSD-3-Clause",
    "nlohmann-json3-dev": "MIT",
    "zlib1g-dev": "Zlib",
}
# Debian source package: license, and a binary package on this machine that has its copyright file.
SOURCES = {
    "curl": ("curl", "libcurl4-openssl-dev"),
    "fmtlib": ("MIT", "libfmt-dev"),
    "highway": ("Apache-2.0", "libhwy-dev"),
    "prometheus-cpp": ("MIT", "prometheus-cpp-dev"),
    "spdlog": ("MIT", "libspdlog-dev"),
}


# What the cross compiler brings itself; its package is installed on this machine.
CROSS_PACKAGES = {"libstdc++-12-dev": "libstdc++-12-dev-arm64-cross"}


class InstalledPackages:
    """The packages of this machine."""

    root = pathlib.Path("/")

    def version(self, package):
        found = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True, check=False)
        if found.returncode != 0 or not found.stdout:
            sys.exit(f"make_sbom: {package} is not installed: the SBOM would be incomplete")
        return found.stdout

    def copyright(self, package):
        return (self.root / "usr/share/doc" / package / "copyright").read_bytes()


class SysrootPackages(InstalledPackages):
    """The packages of a folder that sysroot.sh filled."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.versions = dict(line.split() for line in (self.root / "packages.txt").read_text().splitlines())

    def version(self, package):
        if package in CROSS_PACKAGES:
            return InstalledPackages().version(CROSS_PACKAGES[package])
        if package not in self.versions:
            sys.exit(f"make_sbom: {package} is not in {self.root}: the SBOM would be incomplete")
        return self.versions[package]

    def copyright(self, package):
        if package in CROSS_PACKAGES:
            return InstalledPackages().copyright(CROSS_PACKAGES[package])
        return super().copyright(package)


def linked(packages, sources_list, licenses):
    """(name, version, license) of all that is linked in or whose headers are compiled in."""
    for package, license_name in PACKAGES.items():
        (licenses / f"{package}.txt").write_bytes(packages.copyright(package))
        yield package, packages.version(package), license_name
    for line in pathlib.Path(sources_list).read_text().splitlines():
        name, version = line.split()
        license_name, package = SOURCES[name]
        (licenses / f"{name}.txt").write_bytes(packages.copyright(package))
        yield name, version, license_name


def package_entry(name, version, license_name, purl):
    return {
        "SPDXID": f"SPDXRef-Package-{name.replace('+', 'p').replace('_', '-')}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": license_name,
        "licenseDeclared": license_name,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        ],
    }


def file_entries(folder):
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        relative = path.relative_to(folder).as_posix()
        data = path.read_bytes()
        yield {
            "SPDXID": "SPDXRef-File-" + hashlib.sha256(relative.encode()).hexdigest()[:16],
            "fileName": "./" + relative,
            "checksums": [
                {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
                {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
            ],
            "licenseConcluded": "NOASSERTION",
            "copyrightText": "NOASSERTION",
        }


def document(arguments):
    licenses = pathlib.Path(arguments.licenses)
    licenses.mkdir(parents=True, exist_ok=True)
    packages = SysrootPackages(arguments.sysroot) if arguments.sysroot else InstalledPackages()
    entries = [
        package_entry(name, version, license_name, f"pkg:deb/debian/{name}@{version}")
        for name, version, license_name in sorted(linked(packages, arguments.libraries, licenses))
    ]
    files = list(file_entries(pathlib.Path(arguments.files)))
    product = package_entry(arguments.name, arguments.version, "Apache-2.0", f"pkg:generic/quire@{arguments.version}")
    content = hashlib.sha256(json.dumps([product, entries, files]).encode()).digest()
    created = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", product["SPDXID"])]
    relationships += [(product["SPDXID"], "STATIC_LINK", entry["SPDXID"]) for entry in entries]
    relationships += [(product["SPDXID"], "CONTAINS", entry["SPDXID"]) for entry in files]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": arguments.name,
        "documentNamespace": f"urn:uuid:{uuid.UUID(bytes=content[:16])}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: quire make_sbom.py"]},
        "packages": [product] + entries,
        "files": files,
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relationships
        ],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--libraries", required=True, help="list of source packages and versions")
    parser.add_argument("--sysroot", help="folder of packaging/arm64/sysroot.sh, for arm64 from another machine")
    parser.add_argument("--licenses", required=True, help="folder for license texts")
    parser.add_argument("--files", required=True, help="folder that is packed")
    json.dump(document(parser.parse_args()), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
