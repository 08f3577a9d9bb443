# Models on disk, as Ollama keeps them.
quire_library(quire_model_store
  SOURCES blob_upload.cc bundled_models.cc found_models.cc model_manifest.cc model_store.cc model_store_edit.cc sha256.cc staging.cc
          store_files.cc store_garbage.cc store_layout.cc
  LIBS quire_api OpenSSL::Crypto fmt::fmt nlohmann_json::nlohmann_json spdlog::spdlog)

quire_test(quire_model_store_test
  SOURCES bundled_models_test.cc model_manifest_test.cc model_store_crash_test.cc
          model_store_edit_test.cc model_store_test.cc store_files_test.cc
          testing/store_fixture.cc
  LIBS quire_model_store)

# Models from and to registries.
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
quire_library(quire_registry
  SOURCES partial_blob.cc store_transfer.cc registry/address_policy.cc registry/http.cc registry/pull.cc registry/push.cc
          registry/session.cc registry/transfer.cc
  LIBS quire_model_store PkgConfig::CURL fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
quire_test(quire_registry_test SOURCES registry/address_policy_test.cc registry/session_test.cc LIBS quire_registry)
