// Traces that are tables of text: SimAI's workloads, aicb's lists, PipeDream's graphs, B-Caffe's logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/traces/trace_folder.h"

namespace talweg::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using TableImport = TraceFolder;

constexpr const char* kWorkload =
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 1 all_gpus: 16 checkpoints: 0 "
    "checkpoint_initiates: 0\n"
    "3\n"
    "embedding\t-1\t 14356000\tNONE\t0   4756000\tALLGATHER\t357468\t 1\tREDUCESCATTER\t1889785610\t100\n"
    "layer\t-1\t 10948000\tALLREDUCE\t119162\t 19502000\tNONE\t0\t 1\tNONE\t0\t100\n"
    "layer\t-1\t 7168000\tNONE\t0\t 13844000\tNONE\t0\t 3\tALLREDUCE\t4096\t100\n";

TEST_F(TableImport, ReadsWorkloadsOfSimulators) {
  const TraceJob read = read_job({file("w.txt", kWorkload)});
  const Job& job = read.job;
  EXPECT_EQ(read.kind, TraceKind::simai);
  EXPECT_EQ(job.origin, Origin::estimated);
  EXPECT_EQ(job.ranks, 16);
  ASSERT_EQ(job.layers.size(), 3U);
  EXPECT_EQ(job.layers[0], (Layer{.name = "embedding",
                                  .forward = {14'356'000},
                                  .backward = {4'756'001},
                                  .update = {100},
                                  .gradient = {1'889'785'610}}));
  EXPECT_EQ(job.layers[2].name, "layer.2");
  ASSERT_EQ(job.exchanges.size(), 4U);
  EXPECT_EQ(job.exchanges[0], (Exchange{Collective::all_reduce, {}, {119'162}, {}, {}}));
  EXPECT_EQ(job.exchanges[1], (Exchange{Collective::all_reduce, {2}, {4096}, {}, {}}));
  EXPECT_EQ(job.exchanges[2], (Exchange{Collective::all_gather, {}, {357'468}, {}, {}}));
  EXPECT_EQ(job.exchanges[3], (Exchange{Collective::reduce_scatter, {0}, {1'889'785'610}, {}, {}}));
}

TEST_F(TableImport, LeavesOutWhatGoesWithinGroupsThatShareLayers) {
  std::string text = kWorkload;
  text.replace(text.find("group: 1"), 8, "group: 8");
  const TraceJob read = read_job({file("w.txt", text)});
  EXPECT_EQ(read.job.ranks, 2);
  ASSERT_EQ(read.job.exchanges.size(), 2U);
  EXPECT_EQ(read.job.exchanges[0], (Exchange{Collective::all_reduce, {2}, {4096}, {}, {}}));
  EXPECT_EQ(read.job.exchanges[1], (Exchange{Collective::reduce_scatter, {0}, {1'889'785'610}, {}, {}}));
  EXPECT_THAT(read.notes.at(0), AllOf(StartsWith("8 ranks share each layer (model_parallel_NPU_group)"),
                                      HasSubstr("transfers: 2")));
  text.replace(text.find("checkpoints: 0"), 14, "pp: 2");
  EXPECT_EQ(read_job({file("p.txt", text)}).job.ranks, 1);
  text.replace(text.find("group: 8"), 8, "group: 5");
  EXPECT_THAT(refusal_of("a.txt", text), StartsWith("a.txt:1: expected all_gpus to be a multiple of"));
}

TEST_F(TableImport, NamesTheLineOfAWorkloadThatIsWrong) {
  const std::string text = kWorkload;
  EXPECT_THAT(refusal_of("a.txt", text.substr(0, text.rfind("layer"))),
              StartsWith("a.txt:4: expected 3 layers, got 2: the file is cut"));
  EXPECT_THAT(refusal_of("b.txt", text + "more 1 2\n"),
              StartsWith("b.txt:6: expected no more than 3 layers"));
  std::string wrong = text;
  wrong.replace(wrong.find("10948000"), 8, "-1000000");
  EXPECT_THAT(refusal_of("c.txt", wrong), StartsWith("c.txt:4: forward time: expected a time of at least 0"));
  wrong = text;
  wrong.replace(wrong.find("ALLGATHER"), 9, "ALLTHINGS");
  EXPECT_THAT(refusal_of("d.txt", wrong), HasSubstr("d.txt:3: expected a collective such as ALLREDUCE"));
  wrong = text;
  wrong.replace(wrong.find("1889785610"), 10, "99999999999999999999");
  EXPECT_THAT(refusal_of("e.txt", wrong), HasSubstr("e.txt:3: bytes of a collective"));
}

TEST_F(TableImport, NamesThatAreNoTextBecomeFitToBeWritten) {
  std::string text = kWorkload;
  text.replace(text.find("embedding"), 3, "\xff\x1b\x82");
  const Job job = read_job({file("w.txt", text)}).job;
  EXPECT_EQ(job.layers[0].name, "\\xff\\x1b\\x82edding");
  EXPECT_EQ(parse_job(to_yaml(job), "again.yaml"), job);
}

constexpr const char* kColumns =
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,"
    "count\n";

TEST_F(TableImport, ReadsTheLastStepOfAListOfTransfers) {
  const TraceJob read = read_job({file(
      "w.csv", std::string(kColumns) +
                   "CommType.all_reduce,CommGroup.dp_group,128,4096,warmup,None,None,,None,None,None,9\n"
                   "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n"
                   "CommType.computation,None,None,0,forward,None,None,\"a, b\",2.5,None,None,1\n"
                   "CommType.all_reduce,CommGroup.dp_group,128,8192,backward,None,None,,0.25,None,None,2\n"
                   "CommType.broadcast,CommGroup.tp_group,8,100,init,None,None,,None,None,None,1\n"
                   "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n")});
  const Job& job = read.job;
  ASSERT_EQ(job.exchanges.size(), 3U);
  EXPECT_EQ(job.exchanges[1], (Exchange{Collective::all_reduce, {0}, {8192}, {250'000}, {}}));
  EXPECT_EQ(job.exchanges[2], (Exchange{Collective::broadcast, {}, {100}, {}, {}}));
  ASSERT_EQ(job.layers.size(), 1U);
  EXPECT_EQ(job.layers[0].gradient.value, 2 * 8192);
  EXPECT_EQ(job.layers[0].backward.value, 2'500'000);
  EXPECT_EQ(job.ranks, 128);
  EXPECT_THAT(refusal_of("a.csv", "comm_type,msg_size\nx,1\n"),
              HasSubstr("a.csv:1: expected a column comm_group"));
  EXPECT_THAT(refusal_of("b.csv", std::string(kColumns) + "CommType.all_reduce,1\n"),
              HasSubstr("b.csv:2: expected 12 fields"));
  EXPECT_THAT(refusal_of("c.csv", kColumns), HasSubstr("expected at least one transfer"));
  const std::string row =
      "CommType.all_reduce,CommGroup.dp_group,128,8192,backward,None,None,,0.25,None,None,";
  EXPECT_THAT(refusal_of("d.csv", kColumns + row + "65536\n" + row + "1\n"),
              HasSubstr("d.csv:3: expected at most 65536 transfers in a step"));
}

constexpr const char* kGraph =
    "node3 -- Add(inplace) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=8.000, parameter_size=0.000\n"
    "node10 -- Linear(in_features=512, out_features=1000, bias=True) -- forward_compute_time=0.389, "
    "backward_compute_time=0.118, activation_size=[1024.0; 8.0], parameter_size=2052000.000\n"
    "node1 -- Input -- forward_compute_time=473.625, backward_compute_time=0.000, "
    "activation_size=154140672.000, parameter_size=0.000\n"
    "node2 -- Conv2d(3, 64, bias=False) -- forward_compute_time=23.046, backward_compute_time=9.284, "
    "activation_size=8.0, "
    "parameter_size=37632.000 -- stage_id=0\n"
    "node4 -- ReLU(inplace) -- forward_compute_time=1.5, backward_compute_time=2.5, activation_size=8.000, "
    "parameter_size=0.000\n"
    "\tnode1 -- node2\n\tnode2 -- node4\n\tnode2 -- node3\n\tnode4 -- node3\n\tnode3 -- node10\n";

TEST_F(TableImport, ReadsGraphsInAnOrderThatCanRun) {
  const Job job = read_job({file("graph.txt", kGraph)}).job;
  EXPECT_EQ(job.input.value, 473'625'000);
  ASSERT_EQ(job.layers.size(), 4U);
  EXPECT_EQ(
      job.layers[0],
      (Layer{
          .name = "conv2d_node2", .forward = {23'046'000}, .backward = {9'284'000}, .gradient = {37'632}}));
  EXPECT_EQ(job.layers[1].name, "relu_node4");
  EXPECT_EQ(job.layers[2].after, (std::vector<int>{0, 1}));
  EXPECT_EQ(job.layers[3].gradient.value, 2'052'000);
  EXPECT_TRUE(job.layers[3].after.empty());
}

TEST_F(TableImport, NamesTheLineOfAGraphThatIsWrong) {
  const std::string text = kGraph;
  EXPECT_THAT(refusal_of("a.txt", text + "\tnode10 -- node2\n"), HasSubstr("the edges have a cycle"));
  EXPECT_THAT(refusal_of("b.txt", text + "\tnode10 -- node99\n"),
              StartsWith("b.txt:11: an edge between nodes"));
  EXPECT_THAT(refusal_of("c.txt", text + text.substr(0, text.find('\n') + 1)),
              StartsWith("c.txt:11: node3 is there twice"));
  EXPECT_THAT(refusal_of("f.txt", text.substr(0, text.find("\tnode1"))),
              StartsWith("f.txt:5: expected an edge from or to node1: the file is cut"));
  EXPECT_THAT(refusal_of("g.txt", text.substr(0, text.find("\tnode3"))),
              StartsWith("g.txt:9: expected an edge from or to node10"));
  EXPECT_THAT(refusal_of("d.txt", "node1 -- ReLU -- forward_compute_time=1\n"),
              HasSubstr("expected backward_compute_time="));
  EXPECT_THAT(
      refusal_of("e.txt",
                 "node1 -- ReLU -- forward_compute_time=x, backward_compute_time=1, parameter_size=0\n"),
      HasSubstr("forward_compute_time: expected a time"));
}

std::string log_of(std::initializer_list<const char*> lines) {
  std::string text = "I0621 10:11:12.1 1234 solver.cpp:48] Initializing solver\n";
  for (const char* line : lines)
    text += std::string("I0621 10:11:12.131415  1234 distributed.cpp:100] ") + line + "\n";
  return text;
}

// Weights and bias of a layer repeat its backward time: blobs 0 and 1, and 2 and 3. Two layers of equal times
// are two.
TEST_F(TableImport, CountsALayersBackwardTimeOnce) {
  const Job job =
      read_job({file("tmpcomm.log", log_of({"[0, 9408, 1500, 110]", "[1, 64, 1500, 20]", "[2, 4096, 700, 50]",
                                            "[3, 64, 700, 21]", "[4, 36864, 700, 90]", "[5, 192, 700, 22]",
                                            "[6, 10, 30, 5]"}))})
          .job;
  ASSERT_EQ(job.layers.size(), 4U);
  EXPECT_EQ(job.backward().value, (1500 + 700 + 700 + 30) * 1000);
  EXPECT_EQ(job.layers[0].gradient.value, (9408 + 64) * 4);
  EXPECT_EQ(job.layers[2].gradient.value, (36864 + 192) * 4);
  ASSERT_EQ(job.exchanges.size(), 7U);
  EXPECT_EQ(job.exchanges[0], (Exchange{Collective::all_reduce, {3}, {40}, {5000}, {}}));
  EXPECT_EQ(job.exchanges[6], (Exchange{Collective::all_reduce, {0}, {9408 * 4}, {110'000}, {}}));
}

TEST_F(TableImport, ReadsTheLastMeasuredBlockOfALogThatMerged) {
  const TraceJob read = read_job(
      {file("tmp8ocomm.log", log_of({"[0, 100, 0, 0, 0]", "[1, 10, 0, 0, 0]", "[2, 50, 0, 0, 0]",
                                     "[0, 100, 40, 7, 9]", "[1, 10, 40, 3, 0]", "[2, 50, 60, 8, 12]"}))});
  const Job& job = read.job;
  EXPECT_EQ(job.backward().value, 100'000);
  ASSERT_EQ(job.exchanges.size(), 2U);
  EXPECT_EQ(job.exchanges[0], (Exchange{Collective::all_reduce, {1}, {200}, {12'000}, {}}));
  EXPECT_EQ(job.exchanges[1], (Exchange{Collective::all_reduce, {0}, {440}, {9000}, {}}));
  EXPECT_THAT(refusal_of("zero.log", log_of({"[0, 100, 0, 0]"})), HasSubstr("expected a block with times"));
  EXPECT_THAT(refusal_of("cut.log", log_of({"[0, 9, 1, 1]", "[1, 9, 1, 1]", "[0, 9, 1, 1]"})),
              HasSubstr("expected 2 blobs, as in the block before"));
  const std::string whole = log_of({"[0, 9, 1, 1]", "[1, 9, 1, 1]", "[2, 50, 1, 1]"});
  EXPECT_EQ(refusal_of("whole.log", whole), "");
  for (std::size_t end = whole.rfind("[2") + 2; end < whole.size() - 1; ++end)
    EXPECT_THAT(refusal_of("cut.log", whole.substr(0, end)), HasSubstr("cut.log:4: expected a ] at the end"))
        << end;
  EXPECT_THAT(refusal_of("skip.log", log_of({"[0, 9, 1, 1]", "[3, 9, 1, 1]", "[1, 9, 1, 1]"})),
              HasSubstr("expected blobs 0 to 3 in a block, got 3 of them"));
  EXPECT_THAT(refusal_of("odd.log", log_of({"[0, 9, 1, 1]", "[1, 9, 1, 1, 1]"})),
              HasSubstr("odd.log:3: expected 4 fields"));
}

TEST_F(TableImport, SaysWhereAJobsExchangesAreNotItsGradients) {
  const auto notes = [&](const std::string& exchanges) {
    return read_job(
               {file("job.yaml",
                     "name: tiny\norigin: measured\nlayers:\n  - {name: a, gradient: 4000B}\n  - {name: b, "
                     "gradient: 400B}\nexchanges:\n" +
                         exchanges)})
        .notes;
  };
  const std::string whole = "  - {op: all_reduce, layers: [a], bytes: 4000B}\n";
  EXPECT_TRUE(notes(whole).empty());
  EXPECT_TRUE(notes(whole + "  - {op: broadcast, bytes: 53B}\n").empty());
  // A bucket may end within a layer.
  EXPECT_TRUE(notes("  - {layers: [b, a], bytes: 1400B}\n  - {layers: [a], bytes: 3000B}\n").empty());
  EXPECT_EQ(
      notes(whole + whole),
      std::vector<std::string>{"the exchanges carry 8000 B of gradients, and their layers have 4000 B"});
  EXPECT_EQ(notes("  - {layers: [a], bytes: 1B}\n"),
            std::vector<std::string>{"the exchanges carry 1 B of gradients, and their layers have 4000 B"});
}

TEST_F(TableImport, ReadsTalwegsOwnJobs) {
  const std::string text =
      "name: tiny\norigin: measured\nlayers:\n  - {name: a, forward: 1ms, gradient: 4B}\n";
  const TraceJob read = read_job({file("job.yaml", text)});
  EXPECT_EQ(read.kind, TraceKind::job);
  EXPECT_EQ(read.job.layers.at(0).gradient.value, 4);
  EXPECT_EQ(read_job({file("job.json", to_json(read.job))}).job, read.job);
  EXPECT_EQ(read_job({file("job.yaml.gz", gzipped(text))}).job, read.job);
}

TEST_F(TraceFolder, AJobIsOneWhateverNumbersStandInItsLines) {
  const std::string layers =
      "layers:\n"
      "  - {name: \"0\", forward: 1ms}\n  - {name: \"1\", forward: 1ms}\n"
      "  - {name: \"2\", forward: 1ms}\n  - {name: \"3\", forward: 1ms}\n"
      "  - name: last\n    after: [0, 1, 2, 3]\n";
  EXPECT_EQ(recognise_trace(file("a.yaml", "name: numbers\norigin: measured\n" + layers)), TraceKind::job);
  EXPECT_EQ(recognise_trace(file("b.yaml", "name:\n  152\norigin: measured\n" + layers)), TraceKind::job);
  EXPECT_EQ(recognise_trace(file("c.yaml", layers + "name: numbers\norigin: measured\n")), TraceKind::job);
  std::string long_one;
  for (int i = 0; i < 200; ++i) long_one += "# a line\n";
  EXPECT_EQ(recognise_trace(file("d.yaml", long_one + layers)), TraceKind::job);
}

TEST_F(TraceFolder, WhatUsersCallThingsDoesNotSayWhatATraceIs) {
  const auto trace = [](const std::string& name) {
    return R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "user_annotation", "name": ")" + name +
           R"(", "args": {"layers": 3, "nodes": "chakra"}}]})";
  };
  for (const char* name : {"layers", "nodes", "chakra", "FW.conv1", "a \\\"layers\\\": b"})
    EXPECT_EQ(recognise_trace(file("a.json", trace(name))), TraceKind::kineto) << name;
}

}  // namespace
}  // namespace talweg::train
