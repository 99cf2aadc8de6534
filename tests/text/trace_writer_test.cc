#include "text/trace_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "small_files.h"
#include "talweg/error.h"

namespace talweg::text {
namespace {

TEST(TraceWriter, WritesAListOfEventsOneALine) {
  const std::string path = testing::TempDir() + "trace_writer_test.json";
  TraceWriter writer(path, "trace");
  writer.name_process(3, "host \"a\"");
  writer.name_row(3, 1, "calls");
  writer.event(R"("ph":"i","pid":3,"ts":1.5,"name":"x")");
  writer.note_left_out(3, 0);
  writer.note_left_out(3, 7);
  writer.close();
  std::ifstream file(path);
  const auto events = nlohmann::json::parse(file);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["args"]["name"], "host \"a\"");
  EXPECT_EQ(events[3]["ts"], 1.5);
  EXPECT_EQ(events[4]["args"]["count"], 7);
  std::filesystem::remove(path);
}

TEST(TraceWriter, LeavesNoCutFile) {
  const std::string path = testing::TempDir() + "trace_writer_cut.json";
  const SmallFiles only(1000);
  TraceWriter writer(path, "trace");
  for (int i = 0; i < 10'000; ++i) writer.event(R"("ph":"i")");
  EXPECT_THROW(writer.close(), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TraceWriter, SaysWhatItCannotWrite) {
  EXPECT_THROW(TraceWriter("/nowhere/t.json", "trace"), Error);
  const std::string link = testing::TempDir() + "trace_writer_link.json";
  std::filesystem::remove(link);
  std::filesystem::create_symlink("nowhere.json", link);
  EXPECT_THROW(TraceWriter(link, "trace"), Error);
  std::filesystem::remove(link);
  EXPECT_FALSE(std::filesystem::exists(testing::TempDir() + "nowhere.json"));
  TraceWriter full("/dev/full", "TALWEG_TRACE");
  full.event(R"("ph":"i")");
  try {
    full.close();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "TALWEG_TRACE: cannot write /dev/full: No space left on device");
  }
}

}  // namespace
}  // namespace talweg::text
