#include "formats/msccl_interpreter.h"

#include <algorithm>
#include <deque>
#include <map>
#include <pugixml.hpp>
#include <stdexcept>
#include <tuple>

namespace talweg::formats {
namespace {

struct Step {
  std::string type;
  char source = 'i', target = 'o';
  int source_offset = 0, target_offset = 0, count = 0, awaited_block = -1, awaited_step = -1;
  bool tells = false;
};

struct Block {
  int send = -1, receive = -1, channel = -1;
  std::vector<Step> steps;
  std::size_t done = 0;
};

struct Gpu {
  std::map<char, std::vector<MscclChunk>> buffers;
  std::map<char, int> sizes;
  std::vector<Block> blocks;
  int shift = 0;  // in place: of the shorter buffer in the longer one
  char alias = 0, whole = 0;

  MscclChunk& chunk(char buffer, int offset) {
    if (buffer == alias) {
      buffer = whole;
      offset += shift;
    }
    return buffers.at(buffer).at(static_cast<std::size_t>(offset));
  }
};

using Message = std::vector<MscclChunk>;

class Interpreter {
 public:
  Interpreter(const std::string& xml, bool in_place, int slots, std::uint32_t seed)
      : in_place_(in_place), slots_(static_cast<std::size_t>(slots)), random_(seed) {
    if (!document_.load_string(xml.c_str())) throw std::runtime_error("no XML");
    load();
  }

  MscclRun run() {
    std::vector<std::pair<int, int>> blocks;
    for (int g = 0; g < static_cast<int>(gpus_.size()); ++g)
      for (int b = 0; b < static_cast<int>(gpus_[static_cast<std::size_t>(g)].blocks.size()); ++b)
        blocks.emplace_back(g, b);
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(blocks.begin(), blocks.end(), random_);
      for (const auto& [g, b] : blocks) moved = advance(g, b) || moved;
    }
    MscclRun result;
    result.channels = channels_;
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      Gpu& gpu = gpus_[g];
      result.blocks = std::max(result.blocks, gpu.blocks.size());
      for (std::size_t b = 0; b < gpu.blocks.size(); ++b)
        if (gpu.blocks[b].done < gpu.blocks[b].steps.size())
          result.problem = "GPU " + std::to_string(g) + " block " + std::to_string(b) + " never does step " +
                           std::to_string(gpu.blocks[b].done);
      std::vector<MscclChunk> output;
      for (int i = 0; i < gpu.sizes['o']; ++i) output.push_back(gpu.chunk('o', i));
      result.outputs.push_back(std::move(output));
    }
    for (const auto& [connection, messages] : under_way_)
      if (!messages.empty()) result.problem = "a message is never received";
    return result;
  }

 private:
  void load() {
    const auto algo = document_.child("algo");
    channels_ = algo.attribute("nchannels").as_int();
    for (const auto node : algo.children("gpu")) {
      Gpu gpu;
      const int own = static_cast<int>(gpus_.size());
      if (node.attribute("id").as_int() != own) throw std::runtime_error("GPUs are not in order");
      for (const auto& [buffer, key] :
           {std::pair('i', "i_chunks"), std::pair('o', "o_chunks"), std::pair('s', "s_chunks")}) {
        gpu.sizes[buffer] = node.attribute(key).as_int(-1);
        gpu.buffers[buffer].resize(static_cast<std::size_t>(gpu.sizes[buffer]));
      }
      if (in_place_ && gpu.sizes['i'] > 0 && gpu.sizes['o'] > 0) {
        gpu.alias = gpu.sizes['i'] < gpu.sizes['o'] ? 'i' : 'o';
        gpu.whole = gpu.alias == 'i' ? 'o' : 'i';
        gpu.shift = gpu.sizes['i'] == gpu.sizes['o'] ? 0 : own * gpu.sizes[gpu.alias];
      }
      for (const auto tb : node.children("tb")) gpu.blocks.push_back(load_block(tb));
      gpus_.push_back(std::move(gpu));
    }
    std::size_t inputs = 0;
    for (Gpu& gpu : gpus_) inputs = std::max(inputs, gpu.buffers['i'].size());
    for (std::size_t g = 0; g < gpus_.size(); ++g)
      for (int c = 0; c < gpus_[g].sizes['i']; ++c) {
        MscclChunk& chunk = gpus_[g].chunk('i', c);
        chunk.assign(gpus_.size() * inputs, 0);
        chunk[g * inputs + static_cast<std::size_t>(c)] = 1;
      }
  }

  static Block load_block(const pugi::xml_node tb) {
    Block block;
    block.send = tb.attribute("send").as_int();
    block.receive = tb.attribute("recv").as_int();
    block.channel = tb.attribute("chan").as_int();
    for (const auto node : tb.children("step")) {
      Step step;
      step.type = node.attribute("type").value();
      step.source = *node.attribute("srcbuf").value();
      step.target = *node.attribute("dstbuf").value();
      step.source_offset = node.attribute("srcoff").as_int();
      step.target_offset = node.attribute("dstoff").as_int();
      step.count = node.attribute("cnt").as_int();
      step.awaited_block = node.attribute("depid").as_int();
      step.awaited_step = node.attribute("deps").as_int();
      step.tells = node.attribute("hasdep").as_int() == 1;
      block.steps.push_back(step);
    }
    return block;
  }

  bool advance(int g, int b) {
    Gpu& gpu = gpus_[static_cast<std::size_t>(g)];
    Block& block = gpu.blocks[static_cast<std::size_t>(b)];
    if (block.done == block.steps.size()) return false;
    const Step& step = block.steps[block.done];
    if (step.awaited_block >= 0) {
      const Block& other = gpu.blocks.at(static_cast<std::size_t>(step.awaited_block));
      const Step& awaited = other.steps.at(static_cast<std::size_t>(step.awaited_step));
      // A step that does not tell is never seen to be done.
      if (!awaited.tells || other.done <= static_cast<std::size_t>(step.awaited_step)) return false;
    }
    const bool receives = step.type[0] == 'r', sends = step.type.back() == 's';
    auto& incoming = under_way_[{block.receive, g, block.channel}];
    auto& outgoing = under_way_[{g, block.send, block.channel}];
    if ((receives && incoming.empty()) || (sends && outgoing.size() >= slots_)) return false;

    Message message;
    if (receives) {
      message = incoming.front();
      incoming.pop_front();
      if (message.size() != static_cast<std::size_t>(step.count)) throw std::runtime_error("lengths differ");
    }
    for (int i = 0; i < step.count; ++i) {
      if (!receives) message.push_back(gpu.chunk(step.source, step.source_offset + i));
      MscclChunk& chunk = message[static_cast<std::size_t>(i)];
      if (step.type.starts_with("rr")) {
        const MscclChunk& own = gpu.chunk(step.source, step.source_offset + i);
        if (own.empty() || own.size() != chunk.size())
          throw std::runtime_error("adds what was never written");
        for (std::size_t k = 0; k < own.size(); ++k) chunk[k] += own[k];
      }
      if (chunk.empty()) throw std::runtime_error("moves what was never written");
      const bool copies = step.type.find('c') != std::string::npos || step.type == "r";
      if (copies) gpu.chunk(step.target, step.target_offset + i) = chunk;
    }
    if (sends) outgoing.push_back(std::move(message));
    ++block.done;
    return true;
  }

  pugi::xml_document document_;
  bool in_place_;
  std::size_t slots_;
  std::mt19937 random_;
  int channels_ = 0;
  std::vector<Gpu> gpus_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> under_way_;  // from, to, channel
};

}  // namespace

MscclRun run_msccl(const std::string& xml, bool in_place, int slots, std::uint32_t seed) {
  try {
    return Interpreter(xml, in_place, slots, seed).run();
  } catch (const std::exception& error) {
    return {error.what(), {}, 0, 0};
  }
}

}  // namespace talweg::formats
