// Traces of training of the kind TALWEG_TRACE: refused with an Error, or read as a job that is valid and the
// same after a round trip through its file form. `any` lets the content say what it is, packed or not; `json`
// passes over it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fuzz/fuzz.h"
#include "text/json_stream.h"
#include "train/traces/importers.h"

using namespace talweg;

namespace {

constexpr std::size_t kMostOfTrace = std::size_t{1} << 16;  // more only takes time

// A file that is nowhere on a disk.
class FileInMemory {
 public:
  explicit FileInMemory(const std::string& bytes) : file_(::memfd_create("trace", MFD_CLOEXEC)) {
    fuzz::require(file_ >= 0 &&
                  ::write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~FileInMemory() { ::close(file_); }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

void pass_over(const std::string& bytes, std::size_t at_once) {
  std::size_t at = 0;
  text::JsonStream json(
      [&](char* into, std::size_t most) {
        const std::size_t n = std::min({most, at_once, bytes.size() - at});
        std::memcpy(into, bytes.data() + at, n);
        at += n;
        return n;
      },
      "f");
  json.skip();
  json.end();
}

train::TraceJob read(const std::string& kind, const std::string& bytes) {
  if (kind == "simai") return train::import_simai(bytes, "f");
  if (kind == "aicb") return train::import_aicb(bytes, "f");
  if (kind == "pipedream") return train::import_pipedream(bytes, "f");
  if (kind == "b_caffe") return train::import_b_caffe(bytes, "f");
  if (kind == "onnx") return train::import_onnx(bytes, "f");
  const FileInMemory file(bytes);
  if (kind == "kineto") return train::import_kineto({file.path()}, {});
  if (kind == "chakra") return train::import_chakra({file.path()});
  return train::read_job({file.path()});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > kMostOfTrace) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string kind = TALWEG_TRACE;
  if (kind == "json") {
    // However the bytes come, the answer is the same.
    bool whole = false, pieces = false;
    fuzz::may_refuse([&] { pass_over(bytes, size + 1), whole = true; });
    fuzz::may_refuse([&] { pass_over(bytes, 3), pieces = true; });
    fuzz::require(whole == pieces);
    return 0;
  }
  if (kind == "execution_trace") {
    fuzz::may_refuse([&] {
      const FileInMemory file(bytes);
      for (const auto& [function, s] : train::read_execution_trace(file.path()).by_function)
        fuzz::require(function >= 0 && s.elements >= 0 && s.element_bytes >= 0);
    });
    return 0;
  }
  fuzz::may_refuse([&] {
    constexpr std::size_t kMostLayers = 200;
    const train::TraceJob job = read(kind, bytes);
    fuzz::require(!train::find_problem(job.job));
    if (job.job.layers.size() + job.job.exchanges.size() <= kMostLayers)
      fuzz::require(train::parse_job(to_yaml(job.job), "again.yaml") == job.job);
  });
  return 0;
}
