// NASNet-A-Large (Zoph et al., Learning transferable architectures for scalable image recognition, 2017; its
// table of cells), six cells of 4032 filters in the end, as the weights in use for PyTorch have it: images of
// 331 x 331, without the auxiliary classifier.
#include <fmt/format.h>

#include <utility>

#include "train/model_builder.h"
#include "train/model_definitions.h"

namespace talweg::train {
namespace {

constexpr int kStem = 96, kFilters = 4032 / 24;

// What a cell does with the output of the cell before it and that of the one before that. Letters are the
// pairs of branches that it adds up.
class Nasnet {
 public:
  explicit Nasnet(ModelBuilder& net) : net_(net) {}

  // Of the first cell there is none before the one before.
  Activation stem(const std::string& at, const Activation& in, int filters) {
    return reduced(at, squeezed(at + ".squeeze", in, filters), in, filters);
  }
  Activation second_stem(const std::string& at, const Activation& before, const Activation& in, int filters) {
    return reduced(at, squeezed(at + ".squeeze", in, filters), halved(at, before, filters), filters);
  }
  Activation reduction(const std::string& at, const Activation& before, const Activation& in, int filters) {
    const Activation left = squeezed(at + ".squeeze_before", before, filters);
    return reduced(at, squeezed(at + ".squeeze", in, filters), left, filters);
  }
  Activation normal(const std::string& at, const Activation& before, const Activation& in, int filters) {
    // Behind a reduction the output before the last is twice as wide and high.
    const Activation left = before.width == in.width ? squeezed(at + ".squeeze_before", before, filters)
                                                     : halved(at, before, filters);
    const Activation right = squeezed(at + ".squeeze", in, filters);
    const Activation a =
        sum(at + ".a", separable(at + ".a5", right, filters, 5), separable(at + ".a3", left, filters, 3));
    const Activation b =
        sum(at + ".b", separable(at + ".b5", left, filters, 5), separable(at + ".b3", left, filters, 3));
    const Activation c = sum(at + ".c", mean(at + ".c.mean", right), left);
    const Activation d = sum(at + ".d", mean(at + ".d.mean1", left), mean(at + ".d.mean2", left));
    const Activation e = sum(at + ".e", separable(at + ".e3", right, filters, 3), right);
    return ModelBuilder::concat({left, a, b, c, d, e});
  }

 private:
  Activation sum(const std::string& name, const Activation& one, const Activation& other) {
    return net_.pointwise(name, one, {other});
  }
  Activation mean(const std::string& name, const Activation& in, int stride = 1) {
    return net_.pool(name, in, square(3, stride, 1));
  }
  Activation squeezed(const std::string& name, const Activation& in, int filters) {
    return net_.norm(name + ".norm", net_.conv(name, net_.pointwise(name + ".relu", in), filters, {}, false));
  }
  // Every other pixel, and those between, each by a convolution of its own.
  Activation halved(const std::string& at, const Activation& in, int filters) {
    const Activation x = net_.pointwise(at + ".halve.relu", in);
    const Window every_other{.stride = 2};
    const Activation one =
        net_.conv(at + ".halve1", net_.pool(at + ".halve1.pool", x, every_other), filters / 2, {}, false);
    const Activation two =
        net_.conv(at + ".halve2", net_.pool(at + ".halve2.pool", x, every_other), filters / 2, {}, false);
    return net_.norm(at + ".halve.norm", ModelBuilder::concat({one, two}));
  }
  // Twice: a convolution of each channel, and one of all channels at each pixel.
  Activation separable(const std::string& name, const Activation& in, int filters, int k, int stride = 1) {
    return once(name + ".2", once(name + ".1", in, filters, k, stride), filters, k, 1);
  }
  Activation once(const std::string& name, const Activation& in, int filters, int k, int stride) {
    Window depthwise = square(k, stride, k / 2);
    depthwise.groups = in.channels;
    Activation x =
        net_.conv(name + ".depth", net_.pointwise(name + ".relu", in), in.channels, depthwise, false);
    x = net_.conv(name + ".point", x, filters, {}, false);
    return net_.norm(name + ".norm", x);
  }
  Activation reduced(const std::string& at, const Activation& right, const Activation& left, int filters) {
    const auto quick = [&](const std::string& name, const Activation& in, int k) {
      return separable(at + name, in, filters, k, 2);
    };
    const Activation a = sum(at + ".a", quick(".a5", right, 5), quick(".a7", left, 7));
    const Activation b =
        sum(at + ".b", net_.pool(at + ".b.max", right, square(3, 2, 1)), quick(".b7", left, 7));
    const Activation c = sum(at + ".c", mean(at + ".c.mean", right, 2), quick(".c5", left, 5));
    const Activation d = sum(at + ".d", mean(at + ".d.mean", a), b);
    const Activation e = sum(at + ".e", separable(at + ".e3", a, filters, 3),
                             net_.pool(at + ".e.max", right, square(3, 2, 1)));
    return ModelBuilder::concat({b, c, d, e});
  }

  ModelBuilder& net_;
};

}  // namespace

Job make_nasnet_a_large(const ModelOptions& options) {
  constexpr int kPixels = 331, kCells = 6;
  ModelBuilder net("nasnet_a_large", options);
  Nasnet cell(net);
  const Activation first =
      net.norm("conv0.norm", net.conv("conv0", {3, kPixels, kPixels, {}}, kStem, square(3, 2), false));
  Activation before = cell.stem("stem0", first, kFilters / 4);
  Activation in = cell.second_stem("stem1", first, before, kFilters / 2);
  for (const int wide : {1, 2, 4}) {
    const int filters = wide * kFilters;
    // The cell behind a reduction reads what the reduction has read from before the last cell.
    if (wide > 1) in = cell.reduction(fmt::format("reduction{}", wide / 2), before, in, filters);
    for (int i = 1; i <= kCells; ++i)
      before = std::exchange(in, cell.normal(fmt::format("cell{}.{}", wide, i), before, in, filters));
  }
  net.linear("fc", net.pointwise("dropout", net.global_pool("pool", net.pointwise("relu", in))), 1000);
  return net.finish(3.0 * 4 * kPixels * kPixels);
}

}  // namespace talweg::train
