// Convolutional networks as PyTorch's torchvision defines them, for images of 224 x 224 (Inception: 299 x
// 299).
#include <fmt/format.h>

#include <array>

#include "train/model_builder.h"
#include "train/model_definitions.h"

namespace talweg::train {
namespace {

constexpr int kClasses = 1000;

Activation image(int pixels, int channels = 3) {
  return {channels, pixels, pixels, {}};
}

Activation flat(const Activation& in) {
  return {static_cast<int>(in.size()), 1, 1, in.from};
}

double image_bytes(int pixels) {
  return 3.0 * 4 * pixels * pixels;
}

Activation classifier(ModelBuilder& net, const Activation& x) {
  return net.linear("fc", flat(net.global_pool("pool", x)), kClasses);
}

struct BottleneckShape {
  int groups = 1;
  int width = 64;  // of a group, where planes are 64
};

Activation residual(ModelBuilder& net, const std::string& name, const Activation& in, int planes, int stride,
                    bool bottleneck, const BottleneckShape& shape) {
  const int out = bottleneck ? planes * 4 : planes;
  Activation x;
  if (bottleneck) {
    const int width = planes * shape.width / 64 * shape.groups;
    Window middle = square(3, stride, 1);
    middle.groups = shape.groups;
    x = net.conv_norm_relu(name + ".conv1", in, width);
    x = net.conv_norm_relu(name + ".conv2", x, width, middle);
    x = net.norm(name + ".conv3.norm", net.conv(name + ".conv3", x, out, {}, false));
  } else {
    x = net.conv_norm_relu(name + ".conv1", in, planes, square(3, stride, 1));
    x = net.norm(name + ".conv2.norm", net.conv(name + ".conv2", x, planes, square(3, 1, 1), false));
  }
  Activation shortcut = in;
  if (stride != 1 || in.channels != out)
    shortcut = net.norm(name + ".down.norm", net.conv(name + ".down", in, out, {.stride = stride}, false));
  return net.pointwise(name + ".add", x, {shortcut});
}

}  // namespace

Job make_alexnet(const ModelOptions& options) {
  ModelBuilder net("alexnet", options);
  Activation x = net.pointwise("relu1", net.conv("conv1", image(224), 64, square(11, 4, 2)));
  x = net.pool("pool1", x, square(3, 2));
  x = net.pointwise("relu2", net.conv("conv2", x, 192, square(5, 1, 2)));
  x = net.pool("pool2", x, square(3, 2));
  x = net.pointwise("relu3", net.conv("conv3", x, 384, square(3, 1, 1)));
  x = net.pointwise("relu4", net.conv("conv4", x, 256, square(3, 1, 1)));
  x = net.pointwise("relu5", net.conv("conv5", x, 256, square(3, 1, 1)));
  x = flat(net.pool("pool5", x, square(3, 2)));
  x = net.pointwise("relu6", net.linear("fc6", net.pointwise("dropout6", x), 4096));
  x = net.pointwise("relu7", net.linear("fc7", net.pointwise("dropout7", x), 4096));
  net.linear("fc8", x, kClasses);
  return net.finish(image_bytes(224));
}

Job make_vgg(const std::string& name, const ModelOptions& options, int layers) {
  ModelBuilder net(name, options);
  const int deep = layers == 19 ? 4 : 3;
  const std::array<std::pair<int, int>, 5> blocks{{{2, 64}, {2, 128}, {deep, 256}, {deep, 512}, {deep, 512}}};
  Activation x = image(224);
  int block = 0;
  for (const auto& [convs, channels] : blocks) {
    ++block;
    for (int i = 1; i <= convs; ++i) {
      const std::string at = fmt::format("{}_{}", block, i);
      x = net.pointwise("relu" + at, net.conv("conv" + at, x, channels, square(3, 1, 1)));
    }
    x = net.pool(fmt::format("pool{}", block), x, square(2, 2));
  }
  x = net.pointwise("dropout6", net.pointwise("relu6", net.linear("fc6", flat(x), 4096)));
  x = net.pointwise("dropout7", net.pointwise("relu7", net.linear("fc7", x, 4096)));
  net.linear("fc8", x, kClasses);
  return net.finish(image_bytes(224));
}

Job make_resnet(const std::string& name, const ModelOptions& options, const std::array<int, 4>& blocks,
                bool bottleneck, int groups, int width) {
  ModelBuilder net(name, options);
  Activation x = net.conv_norm_relu("conv1", image(224), 64, square(7, 2, 3));
  x = net.pool("pool1", x, square(3, 2, 1));
  int planes = 64, stage = 0;
  for (const int count : blocks) {
    ++stage;
    for (int i = 0; i < count; ++i)
      x = residual(net, fmt::format("layer{}.{}", stage, i), x, planes, i == 0 && stage > 1 ? 2 : 1,
                   bottleneck, {groups, width});
    planes *= 2;
  }
  classifier(net, x);
  return net.finish(image_bytes(224));
}

Job make_densenet121(const ModelOptions& options) {
  constexpr int kGrowth = 32;
  ModelBuilder net("densenet121", options);
  Activation x = net.conv_norm_relu("conv0", image(224), 64, square(7, 2, 3));
  x = net.pool("pool0", x, square(3, 2, 1));
  int block = 0;
  for (const int layers : {6, 12, 24, 16}) {
    ++block;
    for (int i = 1; i <= layers; ++i) {
      const std::string at = fmt::format("block{}.{}", block, i);
      Activation y = net.pointwise(at + ".relu1", net.norm(at + ".norm1", x));
      y = net.conv_norm_relu(at + ".conv1", y, 4 * kGrowth);
      y = net.conv(at + ".conv2", y, kGrowth, square(3, 1, 1), false);
      x = ModelBuilder::concat({x, y});
    }
    if (block == 4) break;
    const std::string at = fmt::format("transition{}", block);
    x = net.pointwise(at + ".relu", net.norm(at + ".norm", x));
    x = net.pool(at + ".pool", net.conv(at + ".conv", x, x.channels / 2, {}, false), square(2, 2));
  }
  x = net.pointwise("relu5", net.norm("norm5", x));
  classifier(net, x);
  return net.finish(image_bytes(224));
}

// Without the auxiliary classifiers; as torchvision has it, with 3 x 3 where the paper has 5 x 5, and batch
// norms.
Job make_googlenet(const ModelOptions& options) {
  ModelBuilder net("googlenet", options);
  Window pooling = square(3, 2);
  pooling.ceil = true;
  const auto inception = [&](const std::string& at, const Activation& in, const std::array<int, 6>& c) {
    const Activation one = net.conv_norm_relu(at + ".1x1", in, c[0]);
    const Activation three = net.conv_norm_relu(at + ".3x3", net.conv_norm_relu(at + ".3x3.reduce", in, c[1]),
                                                c[2], square(3, 1, 1));
    const Activation five = net.conv_norm_relu(at + ".5x5", net.conv_norm_relu(at + ".5x5.reduce", in, c[3]),
                                               c[4], square(3, 1, 1));
    const Activation pooled =
        net.conv_norm_relu(at + ".pool.1x1", net.pool(at + ".pool", in, square(3, 1, 1)), c[5]);
    return ModelBuilder::concat({one, three, five, pooled});
  };
  Activation x = net.pool("pool1", net.conv_norm_relu("conv1", image(224), 64, square(7, 2, 3)), pooling);
  x = net.conv_norm_relu("conv3", net.conv_norm_relu("conv2", x, 64), 192, square(3, 1, 1));
  x = net.pool("pool2", x, pooling);
  x = inception("3a", x, {64, 96, 128, 16, 32, 32});
  x = inception("3b", x, {128, 128, 192, 32, 96, 64});
  x = net.pool("pool3", x, pooling);
  x = inception("4a", x, {192, 96, 208, 16, 48, 64});
  x = inception("4b", x, {160, 112, 224, 24, 64, 64});
  x = inception("4c", x, {128, 128, 256, 24, 64, 64});
  x = inception("4d", x, {112, 144, 288, 32, 64, 64});
  x = inception("4e", x, {256, 160, 320, 32, 128, 128});
  x = net.pool("pool4", x, square(2, 2));
  x = inception("5a", x, {256, 160, 320, 32, 128, 128});
  x = inception("5b", x, {384, 192, 384, 48, 128, 128});
  classifier(net, x);
  return net.finish(image_bytes(224));
}

Job make_demo(const ModelOptions& options) {
  ModelBuilder net("demo", options);
  Activation x = net.pointwise("relu1", net.conv("conv1", image(8, 1), 64, square(3, 1, 1)));
  x = flat(net.pointwise("relu2", net.conv("conv2", x, 128, square(3, 2, 1))));
  x = net.pointwise("relu3", net.linear("fc1", x, 2048));
  x = net.pointwise("relu4", net.linear("fc2", x, 256));
  net.linear("fc3", x, 10);
  return net.finish(8 * 8 * 4);
}

}  // namespace talweg::train
