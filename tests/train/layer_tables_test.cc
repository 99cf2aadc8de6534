// What merging is worth on layers that somebody has measured, and on networks that others have measured.
// Every number was computed by a program that is not this one.
#include <gtest/gtest.h>

#include <algorithm>

#include "train/layer_table.h"
#include "train/strategies.h"

namespace talweg::train {
namespace {

// All-reduce between the workers of MG-WFBP's authors, as their published program has it: seconds, and
// seconds a byte.
const std::vector<NetworkTimes>& networks() {
  static const std::vector<NetworkTimes> kNetworks{
      network_of("10GbE8", 8, linear_times(0.0005230272768511732, 8.570746975492128e-10)),
      network_of("10GbE16", 16, linear_times(0.0009080981007148093, 7.395651186836712e-10)),
      network_of("IB56_8", 8, linear_times(9.75367204301171e-05, 3.0568230536676206e-10)),
      network_of("IB56_16", 16, linear_times(0.00023583677659915685, 4.0594787739537565e-10)),
      network_of("1GbE", 16, linear_times(2.1e-3, 17e-9))};
  return kNetworks;
}

const NetworkTimes& network(const std::string& name) {
  return *std::ranges::find(networks(), name, &NetworkTimes::name);
}

double step_ms(const Job& job, const char* strategy, const std::string& on, double speed) {
  return predict(job, find_strategy(strategy), {.network = network(on), .compute = speed}).step * 1e3;
}

std::size_t groups(const Job& job, Merging::Rule rule, const std::string& on, double speed) {
  return groups_of(job, {.rule = rule}, {.network = network(on), .compute = speed}).size();
}

TEST(LayerTables, HoldAllParameters) {
  EXPECT_EQ(load_layer_table("vgg16").gradients().value, 4 * 138'357'544);
  EXPECT_EQ(load_layer_table("resnet50").gradients().value, 4 * 25'557'032);
  EXPECT_EQ(load_layer_table("densenet121").gradients().value, 4 * 7'978'856);
  EXPECT_EQ(load_layer_table("inception_v3").gradients().value,
            4 * 27'161'264);  // with its auxiliary classifier
  EXPECT_EQ(load_layer_table("resnet101").gradients().value, 4 * 44'549'160);
  EXPECT_EQ(load_layer_table("resnext50").gradients().value, 4 * 25'028'904);   // 32x4d
  EXPECT_EQ(load_layer_table("resnext101").gradients().value, 4 * 44'177'704);  // 32x4d
  EXPECT_EQ(load_layer_table("alexnet").gradients().value, 4 * 61'100'840);
  EXPECT_EQ(load_layer_table("resnet18").gradients().value, 4 * 11'689'512);
  EXPECT_EQ(load_layer_table("squeezenet1_0").gradients().value, 4 * 1'248'424);
  EXPECT_EQ(load_layer_table("nasnetamobile").gradients().value,
            4 * 8'585'954);  // 3'295'976 of them in its auxiliary classifier
  EXPECT_EQ(load_layer_table("nasnetalarge").gradients().value,
            4 * 92'239'590);  // 3'486'440 of them in its auxiliary classifier
}

struct Row {
  const char* table;
  const char* network;
  double speed;                           // of devices that compute so many times as fast
  double exact, mg_wfbp, wfbp, one, ddp;  // ms a step
  std::size_t mg_wfbp_groups, exact_groups;
};

TEST(LayerTables, StepsAreThoseOfAnIndependentProgram) {
  const Row rows[] = {
      {"densenet121", "10GbE8", 8, 52.2, 69.8, 177.2, 69.8, 59.6, 1, 3},
      {"resnext101", "10GbE16", 8, 164.6, 202.6, 351.7, 202.6, 169.2, 1, 3},
      {"resnet101", "IB56_16", 8, 99.0, 110.0, 147.6, 125.3, 100.2, 3, 3},
      {"inception_v3", "10GbE16", 8, 122.4, 145.9, 295.4, 170.1, 123.8, 2, 3},
      {"resnet50", "10GbE16", 8, 103.5, 115.3, 198.0, 134.3, 105.3, 2, 3},
      {"resnet50", "IB56_8", 8, 57.9, 57.9, 66.9, 89.1, 60.9, 7, 7},
      {"vgg16", "10GbE16", 8, 442.8, 443.3, 455.4, 496.5, 446.3, 2, 2},
      {"resnext50", "1GbE", 8, 1736.1, 1780.1, 1956.6, 1780.1, 1742.4, 1, 2},
      {"resnet50", "10GbE8", 1, 462.9, 462.9, 462.9, 550.5, 471.2, 71, 71},
  };
  for (const Row& row : rows) {
    const Job job = load_layer_table(row.table);
    SCOPED_TRACE(std::string(row.table) + " on " + row.network);
    const auto expect = [&](const char* strategy, double ms) {
      EXPECT_NEAR(step_ms(job, strategy, row.network, row.speed), ms, 0.06) << strategy;
    };
    expect("exact", row.exact);
    expect("mg-wfbp", row.mg_wfbp);
    expect("wfbp", row.wfbp);
    expect("one", row.one);
    expect("ddp", row.ddp);
    EXPECT_EQ(groups(job, Merging::Rule::mg_wfbp, row.network, row.speed), row.mg_wfbp_groups);
    if (row.speed > 1) {
      EXPECT_EQ(groups(job, Merging::Rule::exact, row.network, row.speed), row.exact_groups);
    }
  }
}

// How much longer steps are by the published rule than by the exact one.
struct Losses {
  int cases = 0, over_one_percent = 0, over_five_percent = 0;
  double worst = 0, worst_as_measured = 0;
};

void count_losses(const char* table, Losses& losses) {
  const Job job = load_layer_table(table);
  for (const NetworkTimes& on : networks()) {
    for (const double speed : {1.0, 8.0}) {
      const TransferTimes& times = on.all_reduce;
      const auto arrivals = gradients_of(job, {.network = on, .compute = speed}).arrivals;
      const auto seconds = [](Nanoseconds time) { return static_cast<double>(time.value) * 1e-9; };
      const auto step = [&](const Groups& groups) {
        return seconds(job.forward()) / speed +
               std::max(seconds(job.backward()) / speed, finish(arrivals, groups, times));
      };
      const double exact = step(merge_exact(arrivals, times));
      const double published = step(merge_mg_wfbp(arrivals, times));
      for (const Groups& other : {merge_none(arrivals.size()), merge_all(arrivals.size()),
                                  merge_by_size(arrivals, {1 << 20}, {25 << 20})})
        EXPECT_GE(step(other) * (1 + 1e-12), exact) << table << " on " << on.name;
      const double loss = published / exact - 1;
      EXPECT_GE(loss, -1e-12);
      ++losses.cases;
      losses.over_one_percent += loss > 0.01 ? 1 : 0;
      losses.over_five_percent += loss > 0.05 ? 1 : 0;
      losses.worst = std::max(losses.worst, loss);
      if (speed == 1) losses.worst_as_measured = std::max(losses.worst_as_measured, loss);
    }
  }
}

// The published rule loses where devices are quick and start-ups long. How often was counted by a literal
// copy of the published scan, which starts over after each merge. ResNet-50 on IB56_16 lies on the border:
// 1.0009 %.
TEST(LayerTables, ExactMergingIsNeverBeaten) {
  Losses losses;
  // A count that is known, 25 of 130 cases, does not say of which 13 tables it is; it comes out of these.
  for (const char* table :
       {"alexnet", "densenet121", "gnmt", "gnmt_large", "inception_v3", "nasnetalarge", "resnet18",
        "resnet101", "resnet50", "resnext101", "resnext50", "squeezenet1_0", "vgg16"})
    count_losses(table, losses);
  EXPECT_EQ(losses.cases, 130);
  EXPECT_EQ(losses.over_one_percent, 25);
  EXPECT_EQ(losses.over_five_percent, 10);
  EXPECT_NEAR(losses.worst, 0.3356, 0.0001);
  EXPECT_NEAR(losses.worst_as_measured, 0.0210, 0.0001);

  count_losses("nasnetamobile", losses);  // the last of the 14
  EXPECT_EQ(losses.cases, 140);
  EXPECT_EQ(losses.over_one_percent, 29);
  EXPECT_EQ(losses.over_five_percent, 13);
  EXPECT_NEAR(losses.worst, 0.3356, 0.0001);
  EXPECT_NEAR(losses.worst_as_measured, 0.0954, 0.0001);
}

}  // namespace
}  // namespace talweg::train
