#pragma once
// The text of wgmma's register lists, for wgmma.cuh: QT_TEXT_n is "%0, ..., %(n-1)", QT_BOTH_n are n
// read and written operands d[0], ..., d[n-1].
// clang-format off
#define QT_TEXT_4 "%0, %1, %2, %3"
#define QT_BOTH_4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define QT_TEXT_8 QT_TEXT_4 ", %4, %5, %6, %7"
#define QT_BOTH_8 QT_BOTH_4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define QT_TEXT_12 QT_TEXT_8 ", %8, %9, %10, %11"
#define QT_BOTH_12 QT_BOTH_8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define QT_TEXT_16 QT_TEXT_12 ", %12, %13, %14, %15"
#define QT_BOTH_16 QT_BOTH_12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define QT_TEXT_20 QT_TEXT_16 ", %16, %17, %18, %19"
#define QT_BOTH_20 QT_BOTH_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define QT_TEXT_24 QT_TEXT_20 ", %20, %21, %22, %23"
#define QT_BOTH_24 QT_BOTH_20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define QT_TEXT_28 QT_TEXT_24 ", %24, %25, %26, %27"
#define QT_BOTH_28 QT_BOTH_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define QT_TEXT_32 QT_TEXT_28 ", %28, %29, %30, %31"
#define QT_BOTH_32 QT_BOTH_28, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define QT_TEXT_36 QT_TEXT_32 ", %32, %33, %34, %35"
#define QT_BOTH_36 QT_BOTH_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define QT_TEXT_40 QT_TEXT_36 ", %36, %37, %38, %39"
#define QT_BOTH_40 QT_BOTH_36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define QT_TEXT_44 QT_TEXT_40 ", %40, %41, %42, %43"
#define QT_BOTH_44 QT_BOTH_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define QT_TEXT_48 QT_TEXT_44 ", %44, %45, %46, %47"
#define QT_BOTH_48 QT_BOTH_44, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define QT_TEXT_52 QT_TEXT_48 ", %48, %49, %50, %51"
#define QT_BOTH_52 QT_BOTH_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define QT_TEXT_56 QT_TEXT_52 ", %52, %53, %54, %55"
#define QT_BOTH_56 QT_BOTH_52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define QT_TEXT_60 QT_TEXT_56 ", %56, %57, %58, %59"
#define QT_BOTH_60 QT_BOTH_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define QT_TEXT_64 QT_TEXT_60 ", %60, %61, %62, %63"
#define QT_BOTH_64 QT_BOTH_60, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define QT_TEXT_68 QT_TEXT_64 ", %64, %65, %66, %67"
#define QT_BOTH_68 QT_BOTH_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define QT_TEXT_72 QT_TEXT_68 ", %68, %69, %70, %71"
#define QT_BOTH_72 QT_BOTH_68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define QT_TEXT_76 QT_TEXT_72 ", %72, %73, %74, %75"
#define QT_BOTH_76 QT_BOTH_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define QT_TEXT_80 QT_TEXT_76 ", %76, %77, %78, %79"
#define QT_BOTH_80 QT_BOTH_76, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define QT_TEXT_84 QT_TEXT_80 ", %80, %81, %82, %83"
#define QT_BOTH_84 QT_BOTH_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define QT_TEXT_88 QT_TEXT_84 ", %84, %85, %86, %87"
#define QT_BOTH_88 QT_BOTH_84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define QT_TEXT_92 QT_TEXT_88 ", %88, %89, %90, %91"
#define QT_BOTH_92 QT_BOTH_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define QT_TEXT_96 QT_TEXT_92 ", %92, %93, %94, %95"
#define QT_BOTH_96 QT_BOTH_92, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define QT_TEXT_100 QT_TEXT_96 ", %96, %97, %98, %99"
#define QT_BOTH_100 QT_BOTH_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define QT_TEXT_104 QT_TEXT_100 ", %100, %101, %102, %103"
#define QT_BOTH_104 QT_BOTH_100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define QT_TEXT_108 QT_TEXT_104 ", %104, %105, %106, %107"
#define QT_BOTH_108 QT_BOTH_104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define QT_TEXT_112 QT_TEXT_108 ", %108, %109, %110, %111"
#define QT_BOTH_112 QT_BOTH_108, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define QT_TEXT_116 QT_TEXT_112 ", %112, %113, %114, %115"
#define QT_BOTH_116 QT_BOTH_112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define QT_TEXT_120 QT_TEXT_116 ", %116, %117, %118, %119"
#define QT_BOTH_120 QT_BOTH_116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define QT_TEXT_124 QT_TEXT_120 ", %120, %121, %122, %123"
#define QT_BOTH_124 QT_BOTH_120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define QT_TEXT_128 QT_TEXT_124 ", %124, %125, %126, %127"
#define QT_BOTH_128 QT_BOTH_124, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
// clang-format on
