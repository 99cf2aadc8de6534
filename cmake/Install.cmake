# What `cmake --install` puts where. Components: runtime (the program, its man pages, its completions), development
# (the library, its headers, what finds them); the Python package is a component that only a wheel asks for.
include(CMakePackageConfigHelpers)

install(TARGETS talweg RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(TARGETS talweg_library EXPORT talweg-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/talweg DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(DIRECTORY ${TALWEG_MANUAL}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime
        FILES_MATCHING PATTERN "*.1")
install(FILES ${TALWEG_MANUAL}/talweg.bash RENAME talweg COMPONENT runtime
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${TALWEG_MANUAL}/_talweg DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT runtime)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/talweg)
install(EXPORT talweg-targets NAMESPACE talweg:: FILE talweg-config.cmake
        DESTINATION ${package_folder} COMPONENT development)
# Until 1.0, what was written for one minor release is not promised to compile with the next.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/talweg-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/talweg-config-version.cmake
        DESTINATION ${package_folder} COMPONENT development)

# Relative to the file itself, so that an installed tree may be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/talweg.pc.in ${PROJECT_BINARY_DIR}/generated/talweg.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/talweg.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
