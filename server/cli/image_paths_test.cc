#include "server/cli/image_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A folder with some images, which is the current one.
class ImagePaths : public ::testing::Test {
 protected:
  ImagePaths() {
    std::string name = (std::filesystem::temp_directory_path() / "images-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    std::filesystem::create_directory(folder_ / "more pictures");
    for (const char* file : {"a.png", "B.JPEG", "more pictures/c d.webp", "it's.jpg", "notes.txt"})
      std::ofstream(folder_ / file) << "bytes of " << file;
    std::filesystem::current_path(folder_);
  }
  ~ImagePaths() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  std::string Path(const char* file) const { return (folder_ / file).string(); }

  std::filesystem::path before_ = std::filesystem::current_path(), folder_;
};

std::string TextOf(const std::string& prompt) {
  const auto read = ReadImages(prompt);
  return read ? read->text : "error: " + read.error().message;
}

std::vector<std::string> FilesOf(const std::string& prompt) {
  const auto read = ReadImages(prompt);
  return read ? read->files : std::vector<std::string>{"error: " + read.error().message};
}

TEST_F(ImagePaths, AreTakenOutOfThePrompt) {
  EXPECT_THAT(FilesOf("What is in ./a.png?"), ElementsAre("bytes of a.png"));
  EXPECT_EQ(TextOf("What is in ./a.png?"), "What is in ?");
  EXPECT_EQ(TextOf("./a.png What is it?"), "What is it?");
  EXPECT_EQ(TextOf("Compare ./a.png and ./B.JPEG now"), "Compare and now");
  EXPECT_THAT(FilesOf("Compare ./a.png and ./B.JPEG now"), ElementsAre("bytes of a.png", "bytes of B.JPEG"));
  EXPECT_THAT(FilesOf(Path("a.png")), ElementsAre("bytes of a.png"));
  EXPECT_EQ(TextOf(Path("a.png")), "");
}

TEST_F(ImagePaths, MayBeQuotedEscapedOrPasted) {
  for (const std::string path :
       {"'./more pictures/c d.webp'", "\"./more pictures/c d.webp\"", "'more pictures/c d.webp'",
        "./more\\ pictures/c\\ d.webp", "./more pictures/c d.webp"}) {
    EXPECT_THAT(FilesOf("See " + path + " here"), ElementsAre("bytes of more pictures/c d.webp")) << path;
    EXPECT_EQ(TextOf("See " + path + " here"), "See here") << path;
  }
  EXPECT_THAT(FilesOf("file://" + folder_.string() + "/more%20pictures/c%20d.webp"),
              ElementsAre("bytes of more pictures/c d.webp"));
  EXPECT_THAT(FilesOf("./it\\'s.jpg"), ElementsAre("bytes of it's.jpg"));
  ::setenv("HOME", folder_.c_str(), 1);
  EXPECT_THAT(FilesOf("~/a.png"), ElementsAre("bytes of a.png"));
}

TEST_F(ImagePaths, OtherTextStaysAsItIs) {
  for (const std::string text :
       {"a.png is a name", "What is .png?", "and/or", "/set think", "./notes.txt", "./a.pngs",
        "https://x/./a.png", "it's \"a quote\" of 'x'", "1/2 of 3/4.5"}) {
    EXPECT_EQ(TextOf(text), text);
    EXPECT_THAT(FilesOf(text), IsEmpty()) << text;
  }
}

TEST_F(ImagePaths, AFileThatIsNotThereIsNamed) {
  const auto read = ReadImages("Look at ./b.png and '/no/c.jpg' and 'my.png'");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->text, "Look at ./b.png and '/no/c.jpg' and 'my.png'");
  EXPECT_THAT(read->absent, ElementsAre("./b.png", "/no/c.jpg"));
}

TEST_F(ImagePaths, AnAbsolutePathIsNoCommand) {
  EXPECT_TRUE(BeginsWithImage(Path("a.png") + " what is it?"));
  EXPECT_FALSE(BeginsWithImage("/bye"));
  EXPECT_FALSE(BeginsWithImage("/load ./a.png"));
  EXPECT_FALSE(BeginsWithImage(""));
}

}  // namespace
}  // namespace quire::cli
