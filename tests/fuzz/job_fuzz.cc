// Job files, in YAML and JSON: refused with an Error, or read, and then the same after a round trip.
#include "fuzz/fuzz.h"
#include "train/job.h"

using namespace talweg;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::may_refuse([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const train::Job job = train::parse_job(text, "f.yaml");
    fuzz::require(train::parse_job(to_yaml(job), "again.yaml") == job);
    fuzz::require(train::parse_job(to_json(job), "again.json") == job);
  });
  return 0;
}
