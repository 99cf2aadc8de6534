"""The unit of systemd that is in the Debian package, against systemd and the program: unit_test.py BUILD_FOLDER SOURCE_FOLDER"""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(2))
BUILD = pathlib.Path(sys.argv.pop(1))
UNIT = SOURCE / "cmake" / "debian" / "talweg-switch.service"
INSTALLED = "/usr/bin/talweg"


def service():
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str
    parsed.read_string(UNIT.read_text())
    return parsed["Service"]


class Unit(unittest.TestCase):
    def test_systemd_accepts_it(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / UNIT.name
            unit.write_text(UNIT.read_text().replace(INSTALLED, str((BUILD / "talweg").resolve())))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
        # It reads the units that ours follows as well, and complains of those that the machine has.
        of_ours = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
        self.assertEqual((done.returncode, of_ours), (0, []))

    def test_the_program_has_every_option_that_it_is_started_with(self):
        program, command, *arguments = service()["ExecStart"].split()
        self.assertEqual((program, command), (INSTALLED, "switch"))
        shown = subprocess.run([BUILD / "talweg", "switch", "--help"], check=True, capture_output=True, text=True).stdout
        options = [argument for argument in arguments if argument.startswith("-")]
        self.assertIn("--listen", options)
        for option in options:
            self.assertRegex(shown, rf"(?m)^  (\S+,)?{re.escape(option)} ")

    def test_every_variable_has_a_value_without_its_file(self):
        unit = service()
        given = dict(one.split("=", 1) for one in unit["Environment"].split())
        self.assertEqual(set(re.findall(r"\$\{?(\w+)", unit["ExecStart"])), set(given))
        self.assertEqual(unit["EnvironmentFile"], "-/etc/default/talweg-switch")  # -: it need not be there

    def test_it_is_hardened_and_comes_back(self):
        wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "",
                  "Restart": "on-failure"}  # fmt: skip
        self.assertEqual({name: service()[name] for name in wanted}, wanted)


if __name__ == "__main__":
    outcome = unittest.main(exit=False).result
    sys.exit(1 if not outcome.wasSuccessful() else 77 if outcome.skipped else 0)  # 77: as CMakeLists.txt says
