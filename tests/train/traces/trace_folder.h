// A folder of traces for one test, and what reading them says.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "talweg/error.h"
#include "train/traces/made_trace.h"
#include "train/traces/read_job.h"

namespace talweg::train {

inline std::string gzipped(const std::string& text) {
  z_stream z{};
  ::deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(::deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  ::deflate(&z, Z_FINISH);
  packed.resize(z.total_out);
  ::deflateEnd(&z);
  return packed;
}

class TraceFolder : public testing::Test {
 protected:
  TraceFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "talweg_traces." + std::to_string(::getpid()) + "." + test->name();
    std::filesystem::create_directories(folder_);
  }
  ~TraceFolder() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, std::string_view text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  // A file for each rank.
  std::vector<std::string> files(const MadeTrace& made, int ranks) const {
    std::vector<std::string> paths;
    for (int r = 0; r < ranks; ++r)
      paths.push_back(file("rank" + std::to_string(r) + ".json", kineto_text(made, r)));
    return paths;
  }
  // What is said of them, without the folder; empty, if nothing is wrong.
  std::string refusal(const std::vector<std::string>& paths) const {
    try {
      read_job(paths);
      return "";
    } catch (const Error& error) {
      std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      for (std::size_t at; (at = text.find(folder_ + "/")) != std::string::npos;)
        text.erase(at, folder_.size() + 1);
      return text;
    }
  }
  std::string refusal_of(const std::string& name, std::string_view text) const {
    return refusal({file(name, text)});
  }

 private:
  std::string folder_;
};

}  // namespace talweg::train
