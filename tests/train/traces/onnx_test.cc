#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "train/traces/protobuf_writer.h"
#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using testing::HasSubstr;

using OnnxImport = TraceFolder;

ProtobufWriter constant(const char* name, std::initializer_list<std::uint64_t> sizes,
                        std::uint64_t type = 1) {
  ProtobufWriter packed, tensor;
  for (const std::uint64_t size : sizes) packed.varint(size);
  tensor.bytes(1, packed.text()).number(2, type).bytes(8, name).bytes(9, "weights");
  return tensor;
}

ProtobufWriter value(const char* name, std::initializer_list<std::uint64_t> sizes) {
  ProtobufWriter shape;
  for (const std::uint64_t size : sizes)
    shape.message(1, size == 0 ? ProtobufWriter().bytes(2, "N") : ProtobufWriter().number(1, size));
  return ProtobufWriter().bytes(1, name).message(
      2, ProtobufWriter().message(1, ProtobufWriter().number(1, 1).message(2, shape)));
}

ProtobufWriter node(const char* op, std::initializer_list<const char*> inputs, const char* output,
                    const char* name = "") {
  ProtobufWriter n;
  for (const char* input : inputs) n.bytes(1, input);
  return n.bytes(2, output).bytes(3, name).bytes(4, op);
}

ProtobufWriter list(const char* name, std::initializer_list<std::uint64_t> values) {
  ProtobufWriter a;
  a.bytes(1, name);
  for (const std::uint64_t v : values) a.number(8, v);
  return a;
}

ProtobufWriter graph(std::uint64_t batch = 32) {
  ProtobufWriter g;
  g.message(1, node("Conv", {"x", "w", "b"}, "c", "conv")
                   .message(5, list("pads", {1, 1, 1, 1}))
                   .message(5, list("strides", {2, 2})));
  g.message(1, node("BatchNormalization", {"c", "scale", "shift", "mean", "var"}, "n"));
  g.message(1, node("Relu", {"n"}, "r"));
  g.message(1, node("Add", {"r", "c"}, "s"));
  g.message(1, node("Flatten", {"s"}, "f"));
  g.message(1, node("Gemm", {"f", "fc", "fcb"}, "y").message(5, list("transB", {1})));
  g.bytes(2, "net");
  g.message(5, constant("w", {8, 3, 3, 3})).message(5, constant("b", {8}));
  for (const char* name : {"scale", "shift", "mean", "var"}) g.message(5, constant(name, {8}));
  g.message(5, constant("fc", {10, 8 * 16 * 16}, 10)).message(5, constant("fcb", {10}, 10));
  g.message(11, value("x", {batch, 3, 32, 32}));
  return g;
}

std::string model(const ProtobufWriter& g) {
  return ProtobufWriter().number(1, 8).bytes(2, "pytorch").message(7, g).text();
}

TEST_F(OnnxImport, EstimatesLayersFromWhatTheyComputeAndMove) {
  const TraceJob read = read_job({file("net.onnx", model(graph(4096)))});
  const Job& job = read.job;
  EXPECT_EQ(read.kind, TraceKind::onnx);
  EXPECT_EQ(job.origin, Origin::estimated);
  EXPECT_EQ(job.name, "net");
  EXPECT_EQ(job.batch, 4096);
  ASSERT_EQ(job.layers.size(), 5U);  // Flatten takes no time
  // 4096 x 8 x 16 x 16 outputs of 27 products each.
  const Device& v100 = find_device("v100");
  const double moved = 4.0 * (4096 * 3 * 32 * 32 + 8 * 27 + 8 + 4096 * 8 * 256),
               flops = 2.0 * 4096 * 8 * 256 * 27;
  const double seconds = std::max(moved / v100.memory, flops / v100.flops) / v100.efficiency;
  const auto least = static_cast<double>(v100.least_kernel.value);
  EXPECT_EQ(job.layers[0].name, "conv");
  EXPECT_NEAR(static_cast<double>(job.layers[0].forward.value), std::max(least, seconds * 1e9), 1);
  EXPECT_NEAR(static_cast<double>(job.layers[0].backward.value), std::max(least, 2 * seconds * 1e9), 1);
  const Job slow = read_job({file("same.onnx", model(graph(4096)))}, find_device("k80")).job;
  EXPECT_GT(slow.layers[0].forward.value, job.layers[0].forward.value);
  EXPECT_EQ(job.layers[0].gradient.value, 4 * (216 + 8));
  EXPECT_EQ(job.layers[1].gradient.value, 4 * 16);  // not of what it keeps
  EXPECT_EQ(job.layers[3].after, (std::vector<int>{0, 2}));
  EXPECT_EQ(job.layers[4].name, "Gemm");
  EXPECT_EQ(job.layers[4].gradient.value, 2 * (10 * 2048 + 10));  // half precision
  EXPECT_EQ(job.gradients().value, 4 * (216 + 8 + 16) + 2 * (20480 + 10));
}

TEST_F(OnnxImport, TakesAnOpenBatchAsOneAndSaysSo) {
  const TraceJob read = read_job({file("net.onnx", model(graph(0)))});
  EXPECT_EQ(read.job.batch, 1);
  EXPECT_THAT(read.notes.at(1), HasSubstr("are taken as 1"));
}

// "scale * x", as squeeze-and-excitation has it: each size of 1 is stretched, whichever of the two comes
// first.
TEST_F(OnnxImport, StretchesWhatIsBroadcast) {
  const std::int64_t least = find_device("v100").least_kernel.value;
  for (const bool first : {true, false}) {
    ProtobufWriter g;
    g.message(1, node("GlobalAveragePool", {"x"}, "scale"));
    g.message(1, first ? node("Mul", {"scale", "x"}, "scaled") : node("Mul", {"x", "scale"}, "scaled"));
    g.message(1, node("Add", {"row", "scaled"}, "moved")).message(1, node("Flatten", {"moved"}, "f"));
    g.message(1, node("Gemm", {"f", "fc"}, "y")).message(5, constant("fc", {3 * 64, 10}));
    g.message(5, constant("row", {8})).message(11, value("x", {65536, 3, 8, 8}));
    const Job job = read_job({file("net.onnx", model(g))}).job;
    ASSERT_EQ(job.layers.size(), 4U);
    EXPECT_GT(job.layers[1].forward.value, 10 * least);
    EXPECT_GT(job.layers[2].forward.value, 10 * least);
    EXPECT_EQ(job.gradients().value, 4 * (8 + 1920));
  }
}

TEST_F(OnnxImport, RefusesProductsOfUnknownShape) {
  ProtobufWriter g;
  g.message(1, node("Conv", {"x", "w"}, "c", "first")).message(5, constant("w", {8, 3, 3, 3}));
  g.message(11, ProtobufWriter().bytes(1, "x"));
  EXPECT_THAT(refusal_of("a.onnx", model(g)),
              HasSubstr("node \"first\" (Conv): expected the shape of its output"));
}

TEST_F(OnnxImport, RefusesWhatIsCutOrCannotBe) {
  const std::string text = model(graph());
  for (std::size_t end = 12; end < text.size(); end += 11)
    EXPECT_THAT(refusal_of("cut.onnx", text.substr(0, end)), HasSubstr("expected")) << end;
  ProtobufWriter g = graph();
  g.message(1, node("Add", {"x", "huge"}, "z"))
      .message(5, constant("huge", {std::uint64_t{1} << 40, std::uint64_t{1} << 40}));
  EXPECT_THAT(refusal_of("b.onnx", model(g)), HasSubstr("tensors of at most 2^50 elements"));
  EXPECT_THAT(refusal_of("c.onnx", text + model(graph())), HasSubstr("two models in one file"));
}

TEST_F(OnnxImport, RefusesGraphsThatCannotRun) {
  const auto product = [](std::initializer_list<std::uint64_t> in,
                          std::initializer_list<std::uint64_t> weights, const char* reads = "x") {
    ProtobufWriter g;
    g.message(1, node("MatMul", {reads, "w"}, "h", "first")).message(1, node("Relu", {"h"}, "y"));
    g.message(5, constant("w", weights)).message(11, value("x", in));
    return model(g);
  };
  EXPECT_EQ(refusal_of("good.onnx", product({32, 100}, {100, 200})), "");
  EXPECT_THAT(
      refusal_of("a.onnx", product({32, 100}, {77, 200})),
      HasSubstr("node \"first\" (MatMul): expected inputs that fit each other, got sizes of 100 and 77"));
  EXPECT_THAT(refusal_of("b.onnx", product({0, 100}, {77, 200})), HasSubstr("got sizes of 100 and 77"));
  EXPECT_EQ(refusal_of("open.onnx", product({0, 0}, {77, 200})), "");  // 0: named, and taken as 1
  EXPECT_THAT(
      refusal_of("c.onnx", product({32, 100}, {100, 200}, "y")),
      HasSubstr("node \"first\" (MatMul) reads \"y\": expected an input of the graph, weights in the file"));
  EXPECT_THAT(refusal_of("d.onnx", product({32, 100}, {100, 200}, "gone")), HasSubstr("reads \"gone\""));
  ProtobufWriter g = graph();
  g.message(11, ProtobufWriter().bytes(1, "z").message(
                    2, ProtobufWriter().message(
                           1, ProtobufWriter().message(
                                  2, ProtobufWriter().message(1, ProtobufWriter().number(1, 0))))));
  EXPECT_THAT(refusal_of("e.onnx", model(g)), HasSubstr("input \"z\": expected sizes of at least 1, got 0"));
  g = graph();
  g.message(1, node("Conv", {"s", "thin"}, "t", "second")).message(5, constant("thin", {8, 3, 1, 1}));
  EXPECT_THAT(refusal_of("f.onnx", model(g)), HasSubstr("node \"second\" (Conv): expected inputs that fit"));
}

TEST_F(OnnxImport, GivesManyNodesOfOneKindNamesInLittleTime) {
  ProtobufWriter g;
  const ProtobufWriter relu = node("Relu", {"x"}, "y");
  for (int i = 0; i < 65'536; ++i) g.message(1, relu);
  g.message(11, value("x", {1, 8}));
  const Job job = read_job({file("a.onnx", model(g))}).job;
  EXPECT_EQ(job.layers.at(0).name, "Relu");
  EXPECT_EQ(job.layers.at(2).name, "Relu.3");
  EXPECT_EQ(job.layers.back().name, "Relu.65536");
  g.message(1, relu);
  EXPECT_THAT(refusal_of("b.onnx", model(g)), HasSubstr("b.onnx: expected at most 65536 nodes that compute"));
}

TEST_F(OnnxImport, RefusesGraphsOfEndlessWork) {
  ProtobufWriter empty;
  for (int i = 0; i <= 1 << 20; ++i) empty.message(1, ProtobufWriter());
  EXPECT_THAT(refusal_of("a.onnx", model(empty)), HasSubstr("expected a graph of at most 1048576 nodes"));
  // Each passes on what all the layers have made.
  ProtobufWriter g, all;
  for (int i = 0; i < 3000; ++i) {
    const std::string made = "y" + std::to_string(i);
    g.message(1, node("Relu", {"x"}, made.c_str()));
    all.bytes(1, made);
  }
  g.message(1, all.bytes(2, "z").bytes(4, "Identity"));
  for (int i = 0; i < 3000; ++i) g.message(1, node("Identity", {"z"}, "z"));
  g.message(11, value("x", {1, 8}));
  EXPECT_THAT(refusal_of("b.onnx", model(g)), HasSubstr("expected layers that read at most 4194304 others"));
}

}  // namespace
}  // namespace talweg::train
