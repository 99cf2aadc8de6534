// Nothing: the headers that all tests share are compiled for it (cmake/Rooms.cmake).
