#include "live/join/interface.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "talweg/error.h"

namespace talweg::live {
namespace {

const std::vector<Interface> kThree = {{"lo", "127.0.0.1", true},
                                       {"docker0", "172.17.0.1", false},
                                       {"eth0", "10.0.0.5", false},
                                       {"eth1", "10.1.0.5", false}};

TEST(Interface, ByDefaultNeitherLoopbackNorDocker) {
  EXPECT_EQ(choose_interface("", kThree).name, "eth0");
}

TEST(Interface, FallsBackToLoopbackWhereThereIsNothingElse) {
  EXPECT_EQ(choose_interface("", {kThree[0], kThree[1]}).name, "lo");
}

TEST(Interface, UnderstandsNcclsGrammar) {
  EXPECT_EQ(choose_interface("eth", kThree).name, "eth0");
  EXPECT_EQ(choose_interface("ib,eth1", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("=eth1", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("^lo,docker,eth0", kThree).name, "eth1");
  EXPECT_EQ(choose_interface("^=lo,docker0", kThree).name, "eth0");
  EXPECT_EQ(choose_interface("^docker,br-", kThree).name, "eth0") << "loopback is no way to other hosts";
  EXPECT_EQ(choose_interface("^docker,eth", kThree).name, "lo") << "where nothing else is left";
}

std::vector<std::string> names_of(const std::string& choice, const std::vector<Interface>& from) {
  std::vector<std::string> names;
  for (const Interface& i : choose_interfaces(choice, from)) names.push_back(i.name);
  return names;
}

TEST(Interface, ChoosesSeveralInTheOrderInWhichTheyAreNamed) {
  using ::testing::ElementsAre;
  EXPECT_THAT(names_of("=eth1,eth0", kThree), ElementsAre("eth1", "eth0"));
  EXPECT_THAT(names_of("eth", kThree), ElementsAre("eth0", "eth1")) << "of one name, the kernel's";
  EXPECT_THAT(names_of("eth1,eth", kThree), ElementsAre("eth1", "eth0")) << "each once";
  EXPECT_THAT(names_of("", kThree), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(names_of("^eth0", kThree), ElementsAre("docker0", "eth1"));
  EXPECT_THAT(names_of("^docker,eth", kThree), ElementsAre("lo")) << "where nothing else is left";
  EXPECT_THAT(names_of("lo,eth1", kThree), ElementsAre("lo", "eth1")) << "who names it wants it";
  std::vector<Interface> two_of_one = kThree;
  two_of_one.insert(two_of_one.begin() + 3, {"eth0", "10.0.0.99", false});
  EXPECT_THAT(names_of("=eth0,eth1", two_of_one), ElementsAre("eth0", "eth1"));
  EXPECT_EQ(choose_interfaces("=eth0", two_of_one)[0].address, "10.0.0.5");
  EXPECT_THROW(names_of("=eth", kThree), Error);
  try {
    names_of("=eth0,=eth1", kThree);
    FAIL() << "else the second would be missing, and nothing say so";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                ::testing::HasSubstr("no network interface matches \"=eth1\"; there are: lo (127.0.0.1)"));
  }
}

TEST(Interface, FailsLoudlyWhenNothingMatches) {
  try {
    choose_interface("=eth", kThree);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("\"=eth\""));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("eth1 (10.1.0.5)"));
  }
}

TEST(Interface, FindsTheWayToLoopback) {
  EXPECT_EQ(address_toward("127.0.0.1"), "127.0.0.1");
}

}  // namespace
}  // namespace talweg::live
