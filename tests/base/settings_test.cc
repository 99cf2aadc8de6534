#include "base/settings.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "talweg/error.h"

namespace talweg {
namespace {

using testing::HasSubstr;

// A configuration file of its own, and no variable from outside.
class Settings : public testing::Test {
 protected:
  Settings() {
    std::string pattern = (std::filesystem::temp_directory_path() / "talweg-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    for (const Setting& setting : settings()) unsetenv(std::string(setting.name).c_str());
    configure("");
  }
  ~Settings() override {
    unsetenv("TALWEG_CONF_FILE");
    unsetenv("TALWEG_ALGO");
    std::filesystem::remove_all(folder_);
  }

  std::string file() const { return folder_ + "/conf"; }
  void configure(const std::string& text) const {
    std::ofstream(file()) << text;
    setenv("TALWEG_CONF_FILE", file().c_str(), 1);
  }
  static std::string complaint() {
    try {
      resolve("TALWEG_ALGO");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file);
      return error.what();
    }
    return "no complaint";
  }

 private:
  std::string folder_;
};

template <class Function>
std::string refusal(Function&& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no refusal";
}

TEST_F(Settings, AreReadAsWhatTheyAreOrRefusedByName) {
  configure("TALWEG_STREAMS = 4\nTALWEG_SHM = off\nTALWEG_TIMEOUT = 1.5s\nTALWEG_STALL_WARNING = 7");
  EXPECT_EQ(whole_number_of("TALWEG_STREAMS"), 4);
  EXPECT_FALSE(switch_of("TALWEG_SHM"));
  EXPECT_TRUE(switch_of("TALWEG_CHECKSUM"));
  EXPECT_EQ(wait_of("TALWEG_TIMEOUT").value, 1'500'000'000);
  EXPECT_EQ(wait_of("TALWEG_STALL_WARNING").value, 7'000'000'000);
  configure("TALWEG_STREAMS = 65\nTALWEG_TIMEOUT = 1us");
  EXPECT_THAT(refusal([] { whole_number_of("TALWEG_STREAMS"); }),
              HasSubstr("TALWEG_STREAMS: expected a whole number from 1 to 64, got \"65\""));
  EXPECT_THAT(refusal([] { wait_of("TALWEG_TIMEOUT"); }),
              HasSubstr("TALWEG_TIMEOUT: expected at least 1 ms, got 1 us"));
  configure("TALWEG_STREAMS = 4x\nTALWEG_SHM = maybe\nTALWEG_TIMEOUT = soon");
  EXPECT_THAT(refusal([] { whole_number_of("TALWEG_STREAMS"); }), HasSubstr("TALWEG_STREAMS"));
  EXPECT_THAT(refusal([] { switch_of("TALWEG_SHM"); }),
              HasSubstr("TALWEG_SHM: expected 1 or on, 0 or off, got \"maybe\""));
  EXPECT_THAT(refusal([] { wait_of("TALWEG_TIMEOUT"); }),
              HasSubstr("TALWEG_TIMEOUT: expected a time such as"));
}

TEST_F(Settings, TheirDefaultsAreWhatTheyMayBe) {
  for (const Setting& setting : settings()) EXPECT_NO_THROW(check(setting)) << setting.name;
}

TEST_F(Settings, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  EXPECT_EQ(resolve("TALWEG_CHECKSUM").value, "1");
  EXPECT_EQ(resolve("TALWEG_ALGO").origin, SettingOrigin::default_value);
  configure("# comment\n\nTALWEG_ALGO = ring  # the old one\n");
  EXPECT_EQ(resolve("TALWEG_ALGO").value, "ring");
  EXPECT_EQ(resolve("TALWEG_ALGO").origin, SettingOrigin::file);
  EXPECT_EQ(resolve("TALWEG_ALGO").place, file() + ":3");
  setenv("TALWEG_ALGO", "star", 1);
  EXPECT_EQ(resolve("TALWEG_ALGO").value, "star");
  EXPECT_EQ(resolve("TALWEG_ALGO").origin, SettingOrigin::environment);
  EXPECT_EQ(resolve("TALWEG_ALGO", "chain").value, "chain");
  EXPECT_EQ(resolve("TALWEG_ALGO", "chain").origin, SettingOrigin::flag);
}

TEST_F(Settings, ThoseThatRanksHaveAlikeAreComparedByWhatTheySay) {
  const auto replan = [] {
    for (const auto& [name, value] : alike_settings())
      if (name == "TALWEG_REPLAN") return value;
    return std::string("not among them");
  };
  EXPECT_EQ(replan(), "0");
  for (const char* on : {"1", "on", "true"}) {
    setenv("TALWEG_REPLAN", on, 1);
    EXPECT_EQ(replan(), "1");
  }
  unsetenv("TALWEG_REPLAN");
}

TEST_F(Settings, AnEmptyVariableCountsAsNotSet) {
  configure("TALWEG_ALGO=ring\n");
  setenv("TALWEG_ALGO", "", 1);
  EXPECT_EQ(resolve("TALWEG_ALGO").value, "ring");
}

TEST_F(Settings, AMistakeInTheFileIsNamedWithItsLineWhateverWasAsked) {
  configure("TALWEG_ALGO=ring\nTALWEG_SPEED=fast\n");
  EXPECT_THAT(complaint(), HasSubstr(file() + ":2: no setting is called \"TALWEG_SPEED\""));
  configure("ring\n");
  EXPECT_THAT(complaint(), HasSubstr(file() + ":1: expected NAME=value, got \"ring\""));
}

TEST_F(Settings, ASecretDoesNotBelongIntoAFileThatOthersMayRead) {
  configure("TALWEG_KEY=0123456789abcdef\n");
  EXPECT_THAT(complaint(), HasSubstr(file() + ":1: TALWEG_KEY"));
  EXPECT_THAT(complaint(), testing::Not(HasSubstr("0123456789abcdef")));
}

TEST_F(Settings, ANamedFileThatIsNotThereIsAnError) {
  setenv("TALWEG_CONF_FILE", "/no/such/file", 1);
  EXPECT_THAT(complaint(),
              HasSubstr("/no/such/file (named by TALWEG_CONF_FILE): cannot read it: No such file"));
}

TEST_F(Settings, ADirectoryIsNoFileOfSettings) {
  setenv("TALWEG_CONF_FILE", "/tmp", 1);
  EXPECT_THAT(complaint(), HasSubstr("/tmp (named by TALWEG_CONF_FILE): expected a file, got a directory"));
}

TEST_F(Settings, APipeThatNobodyWritesIntoIsNotWaitedForAsAFileOfSettings) {
  const std::string pipe = file() + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  setenv("TALWEG_CONF_FILE", pipe.c_str(), 1);
  EXPECT_THAT(complaint(), HasSubstr("(named by TALWEG_CONF_FILE): expected a file, got a pipe that nobody"));
}

TEST_F(Settings, ANameThatIsNotInTheTableIsRefused) {
  EXPECT_THROW(resolve("TALWEG_SPEED"), Error);
}

}  // namespace
}  // namespace talweg
