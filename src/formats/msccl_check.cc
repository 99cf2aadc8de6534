#include <fmt/format.h>

#include <deque>
#include <map>
#include <tuple>

#include "base/at.h"
#include "base/fail.h"
#include "formats/msccl.h"
#include "text/escape.h"

namespace talweg::formats {
namespace {

bool receives(const MscclStep& step) {
  return step.type[0] == 'r';
}
bool sends(const MscclStep& step) {
  return step.type.back() == 's';
}

class Checker {
 public:
  Checker(const MscclProgram& program, const MscclLimits& limits) : program_(program), limits_(limits) {}

  void check() {
    require(program_.channels >= 1 && program_.channels <= limits_.channels,
            fmt::format("{} channels: expected 1 to {}", program_.channels, limits_.channels));
    for (gpu_ = 0; gpu_ < std::ssize(program_.gpus); ++gpu_) check_gpu();
    check_connections();
    run();
  }

 private:
  const MscclGpu& gpu() const { return program_.gpus[at(gpu_)]; }

  [[noreturn]] void refuse(const std::string& text) const {
    throw_error(ErrorCode::unsupported, "MSCCL program {}: {}", program_.name, text);
  }
  void require(bool holds, const std::string& text) const {
    if (!holds) refuse(text);
  }
  void require_here(bool holds, const std::string& text) const {
    if (!holds) refuse(fmt::format("GPU {}, block {}, step {}: {}", gpu_, block_, step_, text));
  }

  void check_gpu() {
    const auto& blocks = gpu().blocks;
    require(
        std::ssize(blocks) <= limits_.blocks,
        fmt::format("{} thread blocks on GPU {}: expected at most {}", blocks.size(), gpu_, limits_.blocks));
    step_ = 0;
    for (block_ = 0; block_ < std::ssize(blocks); ++block_) {
      const MscclThreadBlock& block = blocks[at(block_)];
      require_here(!block.steps.empty() && std::ssize(block.steps) <= limits_.steps,
                   fmt::format("{} steps: expected 1 to {}", block.steps.size(), limits_.steps));
      require_here(block.channel >= 0 && block.channel < program_.channels, "the channel does not exist");
      for (const int peer : {block.send, block.receive})
        require_here(peer >= -1 && peer < std::ssize(program_.gpus) && peer != gpu_,
                     "the peer is no other GPU");
      if (block.send >= 0) claim(sender_, {gpu_, block.send, block.channel}, "sends");
      if (block.receive >= 0) claim(receiver_, {block.receive, gpu_, block.channel}, "receives");
      for (step_ = 0; step_ < std::ssize(block.steps); ++step_) check_step(block, block.steps[at(step_)]);
      step_ = 0;
    }
  }

  using Connection = std::tuple<int, int, int>;  // from, to, channel

  void claim(std::map<Connection, std::pair<int, int>>& owners, const Connection& connection,
             const char* what) {
    require_here(owners.emplace(connection, std::pair(gpu_, block_)).second,
                 fmt::format("another block {} over the same channel with the same peer", what));
  }

  void check_step(const MscclThreadBlock& block, const MscclStep& step) const {
    constexpr const char* kTypes[] = {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy"};
    bool known = false;
    for (const char* type : kTypes) known = known || step.type == type;
    require_here(known, fmt::format("type \"{}\" is not understood", step.type));
    require_here(step.count >= 1 && step.count <= limits_.count,
                 fmt::format("{} chunks: expected 1 to {}", step.count, limits_.count));
    require_here(!sends(step) || block.send >= 0, "sends without a peer");
    require_here(!receives(step) || block.receive >= 0, "receives without a peer");
    if (step.type != "r" && step.type != "rcs") require_inside(step.source, step.count);
    if (step.type != "s" && step.type != "rrs") require_inside(step.target, step.count);
    if (step.awaited_block < 0) return;
    const auto& blocks = gpu().blocks;
    require_here(step.awaited_block < std::ssize(blocks) && step.awaited_block != block_ &&
                     step.awaited_step >= 0 &&
                     step.awaited_step < std::ssize(blocks[at(step.awaited_block)].steps),
                 "waits for a step that does not exist");
    require_here(blocks[at(step.awaited_block)].steps[at(step.awaited_step)].is_awaited,
                 "waits for a step that does not tell");
  }

  void require_inside(const MscclPlace& place, int count) const {
    const int size = place.buffer == 'i'   ? gpu().input_chunks
                     : place.buffer == 'o' ? gpu().output_chunks
                     : place.buffer == 's' ? gpu().scratch_chunks
                                           : -1;
    require_here(place.offset >= 0 && place.offset + count <= size,
                 fmt::format("chunks {} to {} of buffer {}, which has {}", place.offset,
                             place.offset + count - 1, place.buffer, size));
  }

  // Each connection has both its ends.
  void check_connections() const {
    for (const auto& [connection, owner] : sender_)
      require(receiver_.count(connection) > 0, nobody(connection, "receives what is sent"));
    for (const auto& [connection, owner] : receiver_)
      require(sender_.count(connection) > 0, nobody(connection, "sends what is received"));
  }

  static std::string nobody(const Connection& connection, const char* what) {
    const auto& [from, to, channel] = connection;
    return fmt::format("nobody {} from GPU {} to GPU {} over channel {}", what, from, to, channel);
  }

  // Does steps as long as one can be done. A step that sends needs an empty connection.
  void run() {
    std::vector<std::vector<int>> done;
    for (const MscclGpu& each : program_.gpus) done.emplace_back(each.blocks.size());
    bool moved = true;
    while (moved) {
      moved = false;
      for (gpu_ = 0; gpu_ < std::ssize(program_.gpus); ++gpu_)
        for (block_ = 0; block_ < std::ssize(gpu().blocks); ++block_)
          while (advance(done[at(gpu_)])) moved = true;
    }
    for (gpu_ = 0; gpu_ < std::ssize(program_.gpus); ++gpu_)
      for (block_ = 0; block_ < std::ssize(gpu().blocks); ++block_) {
        step_ = done[at(gpu_)][at(block_)];
        require_here(step_ == std::ssize(gpu().blocks[at(block_)].steps), "waits for ever");
      }
    for (const auto& [connection, messages] : under_way_)
      require(messages.empty(), nobody(connection, "receives all that is sent"));
  }

  bool advance(std::vector<int>& done) {
    const MscclThreadBlock& block = gpu().blocks[at(block_)];
    step_ = done[at(block_)];
    if (step_ == std::ssize(block.steps)) return false;
    const MscclStep& step = block.steps[at(step_)];
    if (step.awaited_block >= 0 && done[at(step.awaited_block)] <= step.awaited_step) return false;
    auto& incoming = under_way_[{block.receive, gpu_, block.channel}];
    auto& outgoing = under_way_[{gpu_, block.send, block.channel}];
    if (receives(step) && incoming.empty()) return false;
    if (sends(step) && !outgoing.empty()) return false;
    if (receives(step)) {
      require_here(incoming.front() == step.count,
                   fmt::format("takes {} chunks of a message of {}", step.count, incoming.front()));
      incoming.pop_front();
    }
    if (sends(step)) outgoing.push_back(step.count);
    ++done[at(block_)];
    return true;
  }

  const MscclProgram& program_;
  const MscclLimits& limits_;
  int gpu_ = 0, block_ = 0, step_ = 0;
  std::map<Connection, std::pair<int, int>> sender_, receiver_;
  std::map<Connection, std::deque<int>> under_way_;
};

}  // namespace

void check_executable(const MscclProgram& program, const MscclLimits& limits) {
  Checker(program, limits).check();
}

std::string to_xml(const MscclProgram& program) {
  std::string text = fmt::format(
      "<algo name=\"{}\" proto=\"Simple\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" "
      "inplace=\"1\" "
      "outofplace=\"1\" minBytes=\"0\" maxBytes=\"0\">\n",
      text::xml_escaped(program.name), program.channels, program.chunks, program.gpus.size(),
      program.collective);
  for (std::size_t g = 0; g < program.gpus.size(); ++g) {
    const MscclGpu& gpu = program.gpus[g];
    text += fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n", g,
                        gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks);
    for (std::size_t b = 0; b < gpu.blocks.size(); ++b) {
      const MscclThreadBlock& block = gpu.blocks[b];
      text += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", b, block.send,
                          block.receive, block.channel);
      for (std::size_t s = 0; s < block.steps.size(); ++s) {
        const MscclStep& step = block.steps[s];
        text += fmt::format(
            "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" "
            "cnt=\"{}\" "
            "depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
            s, step.type, step.source.buffer, step.source.offset, step.target.buffer, step.target.offset,
            step.count, step.awaited_block, step.awaited_step, step.is_awaited ? 1 : 0);
      }
      text += "    </tb>\n";
    }
    text += "  </gpu>\n";
  }
  return text + "</algo>\n";
}

}  // namespace talweg::formats
