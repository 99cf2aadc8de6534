// Inception v3 (Szegedy et al. 2015) as torchvision defines it, without the auxiliary classifier.
#include "train/model_builder.h"
#include "train/model_definitions.h"

namespace talweg::train {
namespace {

constexpr Window kRow{.height = 1, .width = 7, .pad_width = 3};
constexpr Window kColumn{.height = 7, .width = 1, .pad_height = 3};
constexpr Window kShortRow{.height = 1, .width = 3, .pad_width = 1};
constexpr Window kShortColumn{.height = 3, .width = 1, .pad_height = 1};

// The blocks by the letters of torchvision.
class Inception {
 public:
  explicit Inception(ModelBuilder& net) : net_(net) {}

  Activation a(const std::string& at, const Activation& in, int pooled) {
    const Activation one = conv(at + ".1x1", in, 64);
    const Activation five = conv(at + ".5x5_2", conv(at + ".5x5_1", in, 48), 64, square(5, 1, 2));
    return ModelBuilder::concat(
        {one, five, double_three(at, in, 96, square(3, 1, 1)), pool_branch(at, in, pooled)});
  }
  Activation b(const std::string& at, const Activation& in) {
    const Activation three = conv(at + ".3x3", in, 384, square(3, 2));
    return ModelBuilder::concat(
        {three, double_three(at, in, 96, square(3, 2)), net_.pool(at + ".pool", in, square(3, 2))});
  }
  Activation c(const std::string& at, const Activation& in, int channels) {
    const Activation one = conv(at + ".1x1", in, 192);
    Activation seven = conv(at + ".7x7_2", conv(at + ".7x7_1", in, channels), channels, kRow);
    seven = conv(at + ".7x7_3", seven, 192, kColumn);
    Activation twice = conv(at + ".7x7dbl_2", conv(at + ".7x7dbl_1", in, channels), channels, kColumn);
    twice = conv(at + ".7x7dbl_4", conv(at + ".7x7dbl_3", twice, channels, kRow), channels, kColumn);
    twice = conv(at + ".7x7dbl_5", twice, 192, kRow);
    return ModelBuilder::concat({one, seven, twice, pool_branch(at, in, 192)});
  }
  Activation d(const std::string& at, const Activation& in) {
    const Activation three = conv(at + ".3x3_2", conv(at + ".3x3_1", in, 192), 320, square(3, 2));
    Activation seven = conv(at + ".7x7x3_2", conv(at + ".7x7x3_1", in, 192), 192, kRow);
    seven = conv(at + ".7x7x3_4", conv(at + ".7x7x3_3", seven, 192, kColumn), 192, square(3, 2));
    return ModelBuilder::concat({three, seven, net_.pool(at + ".pool", in, square(3, 2))});
  }
  Activation e(const std::string& at, const Activation& in) {
    const Activation one = conv(at + ".1x1", in, 320);
    const Activation three = conv(at + ".3x3_1", in, 384);
    const Activation three_row = conv(at + ".3x3_2a", three, 384, kShortRow);
    const Activation three_column = conv(at + ".3x3_2b", three, 384, kShortColumn);
    const Activation twice = conv(at + ".3x3dbl_2", conv(at + ".3x3dbl_1", in, 448), 384, square(3, 1, 1));
    const Activation twice_row = conv(at + ".3x3dbl_3a", twice, 384, kShortRow);
    const Activation twice_column = conv(at + ".3x3dbl_3b", twice, 384, kShortColumn);
    return ModelBuilder::concat(
        {one, three_row, three_column, twice_row, twice_column, pool_branch(at, in, 192)});
  }

 private:
  Activation conv(const std::string& name, const Activation& in, int channels, const Window& window = {}) {
    return net_.conv_norm_relu(name, in, channels, window);
  }
  Activation double_three(const std::string& at, const Activation& in, int channels, const Window& last) {
    const Activation x = conv(at + ".3x3dbl_2", conv(at + ".3x3dbl_1", in, 64), channels, square(3, 1, 1));
    return conv(at + ".3x3dbl_3", x, channels, last);
  }
  Activation pool_branch(const std::string& at, const Activation& in, int channels) {
    return conv(at + ".pool.1x1", net_.pool(at + ".pool", in, square(3, 1, 1)), channels);
  }

  ModelBuilder& net_;
};

}  // namespace

Job make_inception_v3(const ModelOptions& options) {
  constexpr int kPixels = 299;
  ModelBuilder net("inception_v3", options);
  Inception block(net);
  Activation x = net.conv_norm_relu("1a", {3, kPixels, kPixels, {}}, 32, square(3, 2));
  x = net.conv_norm_relu("2b", net.conv_norm_relu("2a", x, 32, square(3)), 64, square(3, 1, 1));
  x = net.conv_norm_relu("3b", net.pool("pool1", x, square(3, 2)), 80);
  x = net.pool("pool2", net.conv_norm_relu("4a", x, 192, square(3)), square(3, 2));
  x = block.a("5d", block.a("5c", block.a("5b", x, 32), 64), 64);
  x = block.b("6a", x);
  x = block.c("6c", block.c("6b", x, 128), 160);
  x = block.c("6e", block.c("6d", x, 160), 192);
  x = block.e("7c", block.e("7b", block.d("7a", x)));
  x = net.global_pool("pool", x);
  net.linear("fc", net.pointwise("dropout", x), 1000);
  return net.finish(3.0 * 4 * kPixels * kPixels);
}

}  // namespace talweg::train
