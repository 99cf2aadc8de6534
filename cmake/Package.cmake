# `cpack` in a build folder makes one Debian package of what is installed by default: the program with its manual pages
# and completions, the library, the headers, and the switch as a service of systemd, which is started by nobody.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME talweg)
set(CPACK_PACKAGE_CONTACT "Talweg maintainers <maintainers@users.noreply.talweg.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "collective communication for distributed training")
set(CPACK_PACKAGE_DESCRIPTION "All-reduce and its relatives between the workers of a training job,
planned for the network that they really share. The package has the program
(launcher, benchmark, network lab), the shared library, and what C and C++
programs need to use it.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "iproute2, nftables")  # for talweg lab
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/prepare.cmake)
include(CPack)
